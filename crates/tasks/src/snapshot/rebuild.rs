//! Rebuilds derived data that snapshots do not contain: names, the classes of pools, lanes, timers and counts.

use super::restore::check;
use crate::error::TaskDecodeError;
use crate::group::{GroupKey, group_bytes};
use crate::quota::Amounts;
use crate::slab::NONE;
use crate::state::{SCHEDULE, SchedulerState, TASK, WORKER};
use crate::task::{NEVER_MS, TaskStage};

impl SchedulerState {
    /// Rebuilds the maps from names to numbers.
    pub(super) fn rebuild_names(&mut self) -> Result<(), TaskDecodeError> {
        let of_classes = self.classes.iter().flat_map(|class| [class.queue, class.kind]);
        let of_pools = self.pools.iter().flat_map(|pool| pool.serves.kinds.iter().chain(&pool.serves.queues));
        let names: Vec<u32> = of_classes.chain(of_pools.copied()).collect();
        check(names.iter().all(|name| !self.names.get(*name).is_empty()), "names")?;
        names.into_iter().for_each(|name| self.names.add_use(name));
        self.names.free_all_unused();
        let lanes: Vec<u32> = self.tasks.iter_from(0).map(|(_, task)| task.lane).collect();
        lanes.into_iter().for_each(|lane| self.use_lane(lane));
        fn fill<K: Ord + Clone>(map: &mut imbl::OrdMap<K, u32>, keys: impl Iterator<Item = K>) -> bool {
            keys.enumerate().all(|(at, key)| map.insert(key, at as u32).is_none())
        }
        let mut names = self.tenants.iter().map(|tenant| tenant.name.clone()).enumerate();
        let unique = names.all(|(at, name)| self.tenant_at.insert(name, at as u32).is_none())
            && fill(
                &mut self.class_at,
                self.classes.iter().map(|class| (class.queue, class.kind, class.needs.clone())),
            )
            && fill(&mut self.lane_at, self.lanes.iter().map(|lane| (lane.tenant, lane.class)))
            && fill(&mut self.pool_at, self.pools.iter().map(|pool| pool.serves.clone()));
        check(unique, "names")?;
        let is_used = |stage| !matches!(stage, TaskStage::Completed | TaskStage::Cancelled);
        let tasks = self.tasks.iter_from(0).map(|(_, task)| task).filter(|task| is_used(task.stage));
        self.policies.restore(tasks.map(|task| (task.tenant, task.policy)))?;
        for (at, found) in self.schedules.iter_from(0) {
            check(self.schedule_at.insert((found.tenant, found.name.clone()), at).is_none(), "schedules")?;
        }
        for (at, task) in self.tasks.iter_from(0) {
            if let Some(key) = task.extra.as_ref().and_then(|extra| extra.idempotency_key.clone()) {
                check(self.keys.insert((task.tenant, key), self.tasks.id(at)).is_none(), "idempotency keys")?;
            }
        }
        Ok(())
    }

    /// Rebuilds the information about which pools serve which classes.
    pub(super) fn rebuild_matches(&mut self) {
        for (pool_at, pool) in self.pools.iter_mut().enumerate() {
            let mut served = Vec::new();
            for (class_at, class) in self.classes.iter_mut().enumerate() {
                if pool.serves.can_run(class) {
                    class.add_pool(pool_at as u32, &pool.serves);
                    served.push(class_at as u32);
                }
            }
            pool.classes = served.into();
        }
    }

    /// Rebuilds lanes, idle workers and free capacity.
    pub(super) fn rebuild_order(&mut self) -> Result<(), TaskDecodeError> {
        for (at, lane) in self.lanes.iter().enumerate() {
            let class = &mut self.classes[lane.class as usize];
            class.ready += u64::from(lane.len);
            if let Some(rank) = lane.rank {
                check(lane.len > 0, "lanes")?;
                class.ranked_lanes.insert((rank, at as u32));
            }
        }
        let mut free: Amounts = [0; 3];
        for (at, worker) in self.workers.iter_from(0) {
            check(worker.idle == worker.accepts_tasks().then_some(worker.held.len), "workers")?;
            let pool = &mut self.pools[worker.pool as usize];
            pool.add_worker(worker.capacity);
            if let Some(idle) = worker.idle {
                pool.idle.insert((idle, at));
            }
            if !worker.is_draining {
                pool.credit += u64::from(worker.credit);
                free[0] += u64::from(worker.credit);
                (0..2).for_each(|part| {
                    free[part + 1] += worker.capacity[part].saturating_sub(worker.used[part])
                });
            }
        }
        for (&at, ahead) in &self.ahead {
            if let Some(predicted_end_ms) = ahead.soon_key() {
                self.pools[self.workers[at].pool as usize].soon.insert((predicted_end_ms, at));
            }
        }
        self.free = free;
        for tenant in self.tenants.iter() {
            let reserve = tenant.unused_reserve();
            self.unused_reserve =
                std::array::from_fn(|part| self.unused_reserve[part].saturating_add(reserve[part]));
        }
        Ok(())
    }

    pub(super) fn rebuild_timers(&mut self) {
        let tasks = self.tasks.iter_from(0).map(|(at, task)| (task.due_ms, TASK, at));
        let workers = self.workers.iter_from(0).map(|(at, worker)| (worker.end_ms, WORKER, at));
        let schedules = self.schedules.iter_from(0).map(|(at, found)| (found.due_ms, SCHEDULE, at));
        let all: Vec<_> = tasks.chain(workers).chain(schedules).filter(|timer| timer.0 != NEVER_MS).collect();
        self.timers = all.into_iter().collect();
    }

    /// Rebuilds the counts of bytes and groups. Checks that the resource use of tenants and workers equals the use in
    /// the snapshot.
    pub(super) fn rebuild_counts(&mut self) -> Result<(), TaskDecodeError> {
        let groups = self.groups.keys().map(|key| (key.0, group_bytes(key)));
        let schedules = self.schedules.iter_from(0).map(|(_, found)| (found.tenant, found.bytes()));
        let others: Vec<(u32, u64)> = groups.chain(schedules).collect();
        others.into_iter().for_each(|(tenant, bytes)| self.count_bytes(tenant, bytes, 0, false));
        let mut used: Vec<([u64; 3], u64, u64)> = vec![Default::default(); self.tenants.len()];
        let mut work: Vec<[u64; 2]> = vec![[0; 2]; self.workers.slots_len() as usize];
        let all: Vec<u32> = self.tasks.iter_from(0).map(|(at, _)| at).collect();
        for at in all {
            let task = &self.tasks[at];
            let (stage, need, member) = (task.stage, task.need(), self.member(at));
            let counted = (task.tenant, task.bytes(), task.is_finished());
            let (limited_by, is_held) = (task.limited_by, stage.is_held() && task.worker != NONE);
            let of = &mut used[counted.0 as usize];
            of.1 += u64::from(stage.is_queued());
            of.2 += u64::from(stage == TaskStage::Ready);
            if is_held {
                (0..3).for_each(|part| of.0[part] = of.0[part].saturating_add(need[part]));
                let work = &mut work[task.worker as usize];
                (0..2).for_each(|part| work[part] = work[part].saturating_add(need[part + 1]));
            }
            self.count_bytes(counted.0, counted.1, 0, counted.2);
            if is_held || stage == TaskStage::Ready {
                for key in self.groups_of(at) {
                    self.group(&key).places += 1;
                    if stage == TaskStage::Ready {
                        self.group(&key).ready_members.insert(member);
                        self.reserve_token(&key);
                    }
                }
            }
            if stage == TaskStage::Limited {
                let key = self.groups_of(at).into_iter().find(|key| key.1 == limited_by);
                let key = key.ok_or(TaskDecodeError::Inconsistent("limits"))?;
                self.group(&key).waiting.insert(member);
            }
        }
        let groups: Vec<GroupKey> = self.groups.keys().cloned().collect();
        groups.iter().for_each(|key| self.update_group(key));
        for (tenant, (amounts, queued, ready)) in self.tenants.iter().zip(used) {
            let is_consistent = tenant.used.map(|used| used.now) == amounts
                && (tenant.queued, tenant.ready) == (queued, ready);
            check(is_consistent, "accounts")?;
        }
        check(
            self.workers.iter_from(0).into_iter().all(|(at, worker)| worker.used == work[at as usize]),
            "workers",
        )
    }
}
