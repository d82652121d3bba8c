//! Snapshots: writes a state as blocks of bytes, and restores the state from them.
//!
//! The slots of tasks, workers and schedules (see module `slab`) are written as they are, including free slots, so that
//! ids continue unchanged. Data that follows from other data (lanes, idle workers, timers, groups, keys) is not
//! written. A snapshot that refers to missing items is refused.

mod rebuild;
mod restore;
mod validate;

use std::sync::Arc;

use crate::ahead::WorkerPrefetch;
use crate::error::TaskDecodeError;
use crate::lane::Class;
use crate::layout::{ExtendedEncoding, Fields, Later, Layout, layout};
use crate::limits::SchedulerLimits;
use crate::rate::Bucket;
use crate::state::SchedulerState;
use crate::task::{StoredLabel, TaskList};
use crate::worker::WorkerPool;

pub use restore::StateRestore;

/// Size at which a block is complete, so that the next block begins, bytes.
const BLOCK_BYTES: usize = 64 << 10;

/// Kind of the first block of a snapshot with an extended header. A snapshot has such a header if the state has workers
/// that hold tasks in advance, workers with labels, workers for only some tenants, or tasks that need labels. It also
/// has such a header if the state was restored from a backup.
const HEAD_AHEAD: u8 = 0;
/// Kind of the first block of a snapshot with the basic header.
const HEAD: u8 = 1;
const NAMES: u8 = 2;
const TENANTS: u8 = 3;
const CLASSES: u8 = 4;
const LANES: u8 = 5;
const POOLS: u8 = 6;
const POLICIES: u8 = 7;
const TASKS: u8 = 8;
const WORKERS: u8 = 9;
const SCHEDULES: u8 = 10;
const RESERVED: u8 = 11;
const BUCKETS: u8 = 12;
const AHEAD: u8 = 13;
const NEEDS: u8 = 14;
const TRAITS: u8 = 15;
const ENLISTED: u8 = 30;

layout! {
    /// The header of a task scheduler's snapshot: limits, times and counters.
    #[derive(Debug, Clone)]
    pub struct SnapshotHeader {
        pub limits: SchedulerLimits,
        pub now_ms: u64,
        pub unix_offset_ms: i64,
        pub virtual_time: u64,
        pub token: u64,
        pub is_held_back: bool,
        pub finished: TaskList,
        /// The first free slot of tasks, of workers and of schedules.
        pub free: [u32; 3],
        /// Number of items of each kind in the blocks that follow.
        pub counts: [u32; 11],
    }
}

layout! {
    /// A class of tasks with the same queue and kind, in a snapshot of the task scheduler.
    pub struct TaskClassEntry {
        pub queue: u32,
        pub kind: u32,
    }
}

layout! {
    /// A pool of workers with the same kinds and queues, in a snapshot of the task scheduler.
    pub struct WorkerPoolEntry {
        pub kinds: Vec<u32>,
        pub queues: Vec<u32>,
    }
}

layout! {
    /// A worker that is reserved for one task, in a snapshot of the task scheduler.
    pub struct ReservedWorkerEntry {
        pub worker: u32,
        pub task: u64,
    }
}

layout! {
    /// The token bucket for one value of a tenant's limited key, in a snapshot of the task scheduler.
    pub struct RateBucketEntry {
        pub tenant: u32,
        pub limit: u32,
        pub value: Arc<[u8]>,
        pub bucket: Bucket,
    }
}

layout! {
    /// The header of a snapshot that contains newer kinds of entries. The header states the number of entries of each
    /// newer kind.
    #[derive(Debug, Clone)]
    pub struct ExtendedSnapshotHeader {
        pub head: SnapshotHeader,
        /// Number of workers that may hold tasks in advance.
        pub ahead: u32,
    } later {
        /// Number of classes whose tasks need labels.
        pub needs: u32,
        /// Number of pools that have labels or serve only some tenants.
        pub traits: u32,
    }
}

layout! {
    /// The header of a snapshot of a state that was restored from a backup, with the lowest generations for ids.
    #[derive(Debug, Clone)]
    pub struct RestoredSnapshotHeader {
        pub head: ExtendedEncoding<ExtendedSnapshotHeader>,
        /// Lowest generations of new tasks and workers.
        pub generations_min: [u32; 2],
    }
}

layout! {
    /// The worker labels that the tasks of a class require, in a snapshot of the task scheduler.
    pub struct NeededLabelsEntry {
        pub class: u32,
        pub needs: Vec<StoredLabel>,
    }
}

layout! {
    /// The labels and tenants of a pool of workers, in a snapshot of the task scheduler.
    pub struct PoolTraitsEntry {
        pub pool: u32,
        pub labels: Vec<StoredLabel>,
        pub tenants: Vec<Arc<[u8]>>,
    }
}

layout! {
    /// A worker with the tasks that it may hold in advance, in a snapshot of the task scheduler.
    pub struct WorkerPrefetchEntry {
        pub worker: u32,
        pub ahead: WorkerPrefetch,
    }
}

layout! {
    /// A worker that joined in another shard, in a snapshot of the task scheduler.
    pub struct EnlistedWorkerEntry {
        pub worker: u32,
        pub id: u64,
    }
}

/// The state of the task scheduler at one moment. A snapshot is written from it.
#[derive(Debug, Clone)]
pub struct FrozenSchedulerState(SchedulerState);

impl SchedulerState {
    /// Returns the present state, which later commands do not change. Copies nothing.
    pub fn freeze(&self) -> FrozenSchedulerState {
        FrozenSchedulerState(self.clone())
    }
}

impl FrozenSchedulerState {
    /// Passes the blocks of the snapshot to `emit`, one by one. Stops at the first error of `emit`, and returns this
    /// error.
    pub fn write<E>(&self, mut emit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let state = &self.0;
        let (needs, traits) = (needs(state).count() as u32, traits(state).count() as u32);
        let head =
            ExtendedSnapshotHeader { head: self.head(), ahead: state.ahead.len() as u32, needs, traits };
        let generations_min = [state.tasks.generation_min(), state.workers.generation_min()];
        match (head.has_later_fields(), head.ahead) {
            _ if generations_min != [0; 2] => {
                let head = RestoredSnapshotHeader { head: ExtendedEncoding(head), generations_min };
                write_all(HEAD_AHEAD, std::iter::once(head), &mut emit)?;
            }
            (true, _) => write_all(HEAD_AHEAD, std::iter::once(ExtendedEncoding(head)), &mut emit)?,
            (false, 0) => write_all(HEAD, std::iter::once(head.head), &mut emit)?,
            (false, _) => write_all(HEAD_AHEAD, std::iter::once(head), &mut emit)?,
        }
        write_all(NAMES, state.names.iter().cloned(), &mut emit)?;
        write_each(TENANTS, state.tenants.iter(), &mut emit)?;
        let classes = state.classes.iter();
        let classes = classes.map(|&Class { queue, kind, .. }| TaskClassEntry { queue, kind });
        write_all(CLASSES, classes, &mut emit)?;
        write_each(LANES, state.lanes.iter(), &mut emit)?;
        let pools = state.pools.iter().map(|pool| WorkerPoolEntry {
            kinds: pool.serves.kinds.iter().copied().collect(),
            queues: pool.serves.queues.iter().copied().collect(),
        });
        write_all(POOLS, pools, &mut emit)?;
        write_each(POLICIES, state.policies.iter(), &mut emit)?;
        write_each(TASKS, state.tasks.slots().0, &mut emit)?;
        write_each(WORKERS, state.workers.slots().0, &mut emit)?;
        write_each(SCHEDULES, state.schedules.slots().0, &mut emit)?;
        let reserved = state.reserved.iter().map(|(&worker, &task)| ReservedWorkerEntry { worker, task });
        write_all(RESERVED, reserved, &mut emit)?;
        write_all(BUCKETS, buckets(state), &mut emit)?;
        let ahead = state.ahead.iter().map(|(&worker, &ahead)| WorkerPrefetchEntry { worker, ahead });
        write_all(AHEAD, ahead, &mut emit)?;
        write_all(NEEDS, self::needs(state), &mut emit)?;
        write_all(TRAITS, self::traits(state), &mut emit)?;
        // Includes every worker, because a worker that is missing in a snapshot would seem to have ended.
        let workers = state.workers.iter_from(0).filter(|_| state.shard > 0);
        let enlisted = workers.map(|(at, _)| EnlistedWorkerEntry { worker: at, id: state.worker_id(at) });
        write_all(ENLISTED, enlisted, &mut emit)
    }

    fn head(&self) -> SnapshotHeader {
        let state = &self.0;
        SnapshotHeader {
            limits: state.limits,
            now_ms: state.now_ms,
            unix_offset_ms: state.unix_offset_ms,
            virtual_time: state.virtual_time,
            token: state.token,
            is_held_back: state.is_held_back,
            finished: state.finished,
            free: [state.tasks.slots().1, state.workers.slots().1, state.schedules.slots().1],
            counts: counts(state),
        }
    }
}

/// Classes whose tasks need labels.
fn needs(state: &SchedulerState) -> impl Iterator<Item = NeededLabelsEntry> {
    let classes = state.classes.iter().enumerate().filter(|(_, class)| !class.needs.is_empty());
    classes.map(|(at, class)| NeededLabelsEntry { class: at as u32, needs: class.needs.to_vec() })
}

/// Pools that have labels or serve only some tenants.
fn traits(state: &SchedulerState) -> impl Iterator<Item = PoolTraitsEntry> {
    let pools = state.pools.iter().enumerate();
    let with_traits = pools
        .filter(|(_, WorkerPool { serves, .. })| !serves.labels.is_empty() || !serves.tenants.is_empty());
    with_traits.map(|(at, WorkerPool { serves, .. })| PoolTraitsEntry {
        pool: at as u32,
        labels: serves.labels.iter().cloned().collect(),
        tenants: serves.tenants.iter().cloned().collect(),
    })
}

/// The entries for token buckets that are not full. The snapshot contains no entry for a group whose bucket is full.
fn buckets(state: &SchedulerState) -> impl Iterator<Item = RateBucketEntry> {
    let missing = state.groups.iter().filter(|(_, group)| group.bucket.missing > 0);
    missing.map(|((tenant, limit, value), group)| RateBucketEntry {
        tenant: *tenant,
        limit: *limit,
        value: value.clone(),
        bucket: group.bucket,
    })
}

fn counts(state: &SchedulerState) -> [u32; 11] {
    [
        state.names.len() as u32,
        state.tenants.len() as u32,
        state.classes.len() as u32,
        state.lanes.len() as u32,
        state.pools.len() as u32,
        state.policies.len() as u32,
        state.tasks.slots_len(),
        state.workers.slots_len(),
        state.schedules.slots_len(),
        state.reserved.len() as u32,
        buckets(state).count() as u32,
    ]
}

fn write_all<'l, T: Layout<'l>, E>(
    kind: u8,
    entries: impl Iterator<Item = T>,
    emit: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let start = [crate::VERSION, kind];
    let mut block = start.to_vec();
    for entry in entries {
        entry.write(&mut block);
        if block.len() >= BLOCK_BYTES {
            emit(&block)?;
            block.truncate(start.len());
        }
    }
    if block.len() > start.len() { emit(&block) } else { Ok(()) }
}

/// Like [`write_all`], but for borrowed items.
fn write_each<'s, 'l, T: Layout<'l> + 's, E>(
    kind: u8,
    entries: impl Iterator<Item = &'s T>,
    emit: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    write_all(kind, entries.map(Borrowed), emit)
}

struct Borrowed<'s, T>(&'s T);

impl<'l, T: Layout<'l>> Layout<'l> for Borrowed<'_, T> {
    fn read(_: &mut Fields<'l>) -> Result<Self, TaskDecodeError> {
        Err(TaskDecodeError::Inconsistent("entries that can only be written"))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}
