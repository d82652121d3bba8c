//! Rebuilds a scheduler's state from the blocks of a snapshot.

use std::sync::Arc;

use super::{
    AHEAD, BUCKETS, CLASSES, ENLISTED, EnlistedWorkerEntry, ExtendedSnapshotHeader, HEAD, HEAD_AHEAD, LANES,
    NAMES, NEEDS, NeededLabelsEntry, POLICIES, POOLS, PoolTraitsEntry, RESERVED, RateBucketEntry,
    ReservedWorkerEntry, SCHEDULES, SnapshotHeader, TASKS, TENANTS, TRAITS, TaskClassEntry, WORKERS,
    WorkerPoolEntry, WorkerPrefetchEntry, counts,
};
use crate::error::TaskDecodeError;
use crate::group::TaskGroup;
use crate::lane::{Class, Lane};
use crate::layout::{Fields, Later, Layout};
use crate::limits::SchedulerLimits;
use crate::retry::RetryPolicy;
use crate::schedule::Schedule;
use crate::slab::Slot;
use crate::state::SchedulerState;
use crate::task::Task;
use crate::tenant::Tenant;
use crate::worker::{ServedSet, Worker, WorkerPool};

/// Restores the state of the task scheduler from the blocks of a snapshot.
#[derive(Debug, Default)]
pub struct StateRestore {
    head: Option<ExtendedSnapshotHeader>,
    last: u8,
    state: SchedulerState,
}

impl StateRestore {
    /// Starts to restore the state of the shard with this number.
    pub fn of_shard(shard: u8) -> StateRestore {
        StateRestore {
            state: SchedulerState::of_shard(SchedulerLimits::default(), shard),
            ..StateRestore::default()
        }
    }

    /// Reads the next block of the snapshot.
    pub fn read_block(&mut self, block: &[u8]) -> Result<(), TaskDecodeError> {
        let mut fields = Fields { rest: block };
        let (version, kind) = (u8::read(&mut fields)?, u8::read(&mut fields)?);
        if version != crate::VERSION {
            return Err(TaskDecodeError::Version(version));
        }
        if kind < self.last || matches!(kind, HEAD | HEAD_AHEAD) != self.head.is_none() {
            return Err(TaskDecodeError::Order("blocks"));
        }
        self.last = kind;
        while !fields.rest.is_empty() {
            self.read_entry(kind, &mut fields)?;
        }
        Ok(())
    }

    fn read_entry(&mut self, kind: u8, fields: &mut Fields<'_>) -> Result<(), TaskDecodeError> {
        let state = &mut self.state;
        match kind {
            HEAD | HEAD_AHEAD if self.head.is_some() => {
                return Err(TaskDecodeError::Trailing(fields.rest.len()));
            }
            HEAD => {
                let head = SnapshotHeader::read(fields)?;
                self.head = Some(ExtendedSnapshotHeader { head, ahead: 0, needs: 0, traits: 0 });
            }
            HEAD_AHEAD => {
                let head = self.head.insert(ExtendedSnapshotHeader::read(fields)?);
                if !fields.rest.is_empty() {
                    head.read_more(fields)?;
                }
                if !fields.rest.is_empty() {
                    let [tasks, workers] = Layout::read(fields)?;
                    state.tasks.set_generation_min(tasks);
                    state.workers.set_generation_min(workers);
                }
            }
            NAMES => {
                let name = <&[u8]>::read(fields)?;
                check(state.names.find(name).is_none(), "names")?;
                state.names.push(name);
            }
            TENANTS => state.tenants.push_back(Tenant::read(fields)?),
            CLASSES => {
                let TaskClassEntry { queue, kind } = TaskClassEntry::read(fields)?;
                state.push_class(Class::new(queue, kind, Arc::default()));
            }
            LANES => state.push_lane(Lane::read(fields)?),
            POOLS => {
                let WorkerPoolEntry { kinds, queues } = WorkerPoolEntry::read(fields)?;
                let (kinds, queues) = (kinds.into_iter().collect(), queues.into_iter().collect());
                state.pools.push_back(WorkerPool::new(Arc::new(ServedSet {
                    kinds,
                    queues,
                    ..ServedSet::default()
                })));
            }
            POLICIES => state.policies.push(RetryPolicy::read(fields)?),
            TASKS => state.tasks.push_slot(Slot::<Task>::read(fields)?),
            WORKERS => state.workers.push_slot(Slot::<Worker>::read(fields)?),
            SCHEDULES => state.schedules.push_slot(Slot::<Schedule>::read(fields)?),
            RESERVED => {
                let ReservedWorkerEntry { worker, task } = ReservedWorkerEntry::read(fields)?;
                check(state.reserved.insert(worker, task).is_none(), "reservations")?;
            }
            BUCKETS => {
                let RateBucketEntry { tenant, limit, value, bucket } = RateBucketEntry::read(fields)?;
                let group = TaskGroup { bucket, ..TaskGroup::default() };
                check(state.groups.insert((tenant, limit, value), group).is_none(), "rates")?;
            }
            AHEAD => {
                let WorkerPrefetchEntry { worker, ahead } = WorkerPrefetchEntry::read(fields)?;
                check(state.ahead.insert(worker, ahead).is_none(), "workers")?;
            }
            NEEDS => {
                let NeededLabelsEntry { class, needs } = NeededLabelsEntry::read(fields)?;
                let found = state.classes.get_mut(class as usize).filter(|class| class.needs.is_empty());
                let found = found.ok_or(TaskDecodeError::Inconsistent("classes"))?;
                check(!needs.is_empty() && needs.is_sorted_by(|a, b| a < b), "classes")?;
                found.needs = needs.into();
                state.demands += 1;
            }
            TRAITS => self.read_traits(PoolTraitsEntry::read(fields)?)?,
            ENLISTED => {
                let EnlistedWorkerEntry { worker, id } = EnlistedWorkerEntry::read(fields)?;
                check(state.enlisted.insert(worker, id), "workers of other shards")?;
            }
            number => return Err(TaskDecodeError::Unknown { what: "kind of block", number }),
        }
        Ok(())
    }

    fn read_traits(&mut self, entry: PoolTraitsEntry) -> Result<(), TaskDecodeError> {
        let PoolTraitsEntry { pool, labels, tenants } = entry;
        let found = self.state.pools.get_mut(pool as usize).ok_or(TaskDecodeError::Inconsistent("pools"))?;
        let serves = Arc::make_mut(&mut found.serves);
        let is_new = serves.labels.is_empty() && serves.tenants.is_empty();
        check(is_new && (!labels.is_empty() || !tenants.is_empty()), "pools")?;
        let (labels_len, tenants_len) = (labels.len(), tenants.len());
        (serves.labels, serves.tenants) = (labels.into_iter().collect(), tenants.into_iter().collect());
        check((serves.labels.len(), serves.tenants.len()) == (labels_len, tenants_len), "pools")
    }

    /// Returns the state, if the snapshot is complete.
    pub fn finish(self) -> Result<SchedulerState, TaskDecodeError> {
        let ExtendedSnapshotHeader { head, ahead, needs, traits } =
            self.head.ok_or(TaskDecodeError::Short)?;
        let mut state = self.state;
        let is_complete = state.demands == needs && super::traits(&state).count() == traits as usize;
        if counts(&state) != head.counts || state.ahead.len() != ahead as usize || !is_complete {
            return Err(TaskDecodeError::Short);
        }
        state.limits = head.limits;
        (state.now_ms, state.unix_offset_ms) = (head.now_ms, head.unix_offset_ms);
        (state.virtual_time, state.token) = (head.virtual_time, head.token);
        (state.is_held_back, state.finished) = (head.is_held_back, head.finished);
        let [tasks, workers, schedules] = head.free;
        let chained = state.tasks.set_free(tasks)
            && state.workers.set_free(workers)
            && state.schedules.set_free(schedules);
        check(chained, "free slots")?;
        state.check_references()?;
        state.check_lists()?;
        state.rebuild_names()?;
        state.rebuild_matches();
        state.rebuild_order()?;
        state.rebuild_timers();
        state.rebuild_counts()?;
        Ok(state)
    }
}

pub(super) fn check(is_consistent: bool, what: &'static str) -> Result<(), TaskDecodeError> {
    if is_consistent { Ok(()) } else { Err(TaskDecodeError::Inconsistent(what)) }
}
