//! Allocates workers' slots to the shards of the task scheduler, so that every tenant gets its share of all slots,
//! independently of the tenant's shard.
//!
//! Each shard divides its slots fairly among its tenants (see module `assign`). The result is fair among all tenants if
//! a shard has as many slots as its tenants' shares add up to ([`due_slots`]). A tenant's share follows from its
//! weight, and is at most the number of slots that the tenant can use. Since a slot cannot be divided, shares are
//! rounded. Slots that remain after rounding go to one shard after another ([`SlotApportioner`]), so that even a single
//! slot is shared over time. [`move_slots`] then selects the workers whose slots move to other shards.
//!
//! Each node knows all shards, and allocates the slots of its attached workers. The slots of workers that serve the
//! same tasks are allocated together. All slots of a worker that states its processors or memory go to a single shard,
//! because two shards cannot both count on the same memory.
//!
//! Invariants:
//! - Slots move only if a shard could use more slots than it has. Slots that are allocated to no shard are allocated
//!   immediately.
//! - Allocation is repeated every [`INTERVAL_MS`]; for workers that serve a single shard, every
//!   [`SINGLE_SHARD_INTERVAL_MS`]. A slot moves to another shard only when the task in the slot is done.
//!
//! Soft quotas decide only between tenants of the same shard.

use std::collections::{BTreeMap, BTreeSet};

use crate::quota::Quota;
use crate::slots::{SlotApportioner, TenantDemand, WorkerSlots, due_slots, move_slots};
use crate::state::SchedulerState;

/// Time between two allocations, ms, by the caller's clock.
const INTERVAL_MS: u64 = 50;
/// Time between two allocations of slots, ms, for workers that each serve a single shard. Such a worker finishes all
/// its tasks before its slots move to another shard.
const SINGLE_SHARD_INTERVAL_MS: u64 = 1_000;

/// How many slots one shard needs from the workers of a pool, and how many slots of these workers the shard has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ShardDemand {
    /// Demand of each tenant that has tasks or reserved capacity.
    tenants: Vec<TenantDemand>,
    /// Number of slots that the shard has, of the pool's workers on all nodes.
    slots: u64,
}

impl ShardDemand {
    /// Whether the shard could use more slots.
    fn needs_slots(&self) -> bool {
        self.tenants.iter().map(|tenant| tenant.demand.max(tenant.reserved)).sum::<u64>() > self.slots
    }
}

/// The knowledge of one shard: its workers, and the slots that its tenants need. Slots are divided among the shards on
/// the basis of this knowledge.
#[derive(Debug, Clone, Default)]
pub struct DemandSnapshot {
    workers: BTreeMap<u64, WorkerShare>,
    /// Demand for the workers of each pool. The key is the number that the shard gives the pool.
    demands: BTreeMap<u32, ShardDemand>,
}

/// A worker as one shard knows it: its pool, its slots in this shard, and the tasks that it holds.
#[derive(Debug, Clone, Copy)]
struct WorkerShare {
    pool: u32,
    /// Whether the worker states its processors or memory, and therefore serves a single shard.
    is_single_shard: bool,
    allotted: u32,
    held: u32,
}

/// The workers' new limits in one shard. Each entry has a worker's id, number of slots, and maximum number of tasks
/// ahead.
pub type SlotChanges = Vec<(u64, u32, u32)>;

/// Divides the slots of workers among the shards of the task scheduler.
#[derive(Debug, Clone, Default)]
pub struct SlotAllocator {
    workers: BTreeMap<u64, AllocatedWorker>,
    /// The last allocation of each pool. The key is the pool's number, and whether each of its workers serves a single
    /// shard.
    last_allocations: BTreeMap<(u32, bool), LastAllocation>,
}

/// A worker whose slots are allocated to shards.
#[derive(Debug, Clone, Copy)]
struct AllocatedWorker {
    slots: u32,
    ahead: u32,
    /// Number of unallocated slots; `None` for a new worker.
    pending: Option<u32>,
}

/// The last allocation to shards, for all workers that serve the same tasks.
#[derive(Debug, Clone, Default)]
struct LastAllocation {
    apportioner: SlotApportioner,
    /// Number of slots of each shard.
    slots: Vec<u64>,
    at_ms: u64,
}

impl SlotAllocator {
    /// Adds a worker, or sets its slots and tasks ahead.
    pub fn set_worker(&mut self, worker: u64, slots: u32, ahead: u32) {
        self.workers.insert(worker, AllocatedWorker { slots, ahead, pending: None });
    }

    /// Keeps only the workers for which `is_attached` is true.
    pub fn retain(&mut self, is_attached: impl Fn(u64) -> bool) {
        self.workers.retain(|worker, _| is_attached(*worker));
    }

    /// All workers.
    pub fn workers(&self) -> Vec<u64> {
        self.workers.keys().copied().collect()
    }

    /// Whether some slots are not allocated yet, because a task has to end first or a shard is not known yet.
    pub fn has_pending_slots(&self) -> bool {
        self.workers.values().any(|known| known.pending != Some(0))
    }

    /// Computes the changes for each shard, in the order of shards. After the caller has applied the changes, it calls
    /// [`SlotAllocator::update_pending`]. `now_ms` is the time by the caller's clock.
    pub fn allocate(&mut self, now_ms: u64, shards: &[DemandSnapshot]) -> Vec<SlotChanges> {
        let mut slots = vec![SlotChanges::new(); shards.len()];
        let Some(home) = shards.first() else { return slots };
        let mut pools: BTreeMap<(u32, bool), Vec<u64>> = BTreeMap::new();
        for (&worker, known) in &mut self.workers {
            // Skips a worker that at least one shard does not know. Such a worker will attach again, or has ended.
            let Some(allotted) = allotted_slots(worker, shards) else { continue };
            let allotted: u32 = allotted.iter().sum();
            // The allotted and the pending slots together may exceed `known.slots`. In this case, the worker has
            // requested more slots in the meantime, and now has as many as the two numbers together.
            known.slots = known.pending.map_or(known.slots, |pending| known.slots.max(allotted + pending));
            let rest = known.slots.saturating_sub(allotted);
            known.pending = Some(known.pending.map_or(rest, |pending| pending.min(rest)));
            let part = &home.workers[&worker];
            pools.entry((part.pool, part.is_single_shard)).or_default().push(worker);
        }
        self.last_allocations.retain(|pool, _| pools.contains_key(pool));
        for (pool, workers) in pools {
            self.allocate_pool(now_ms, pool, &workers, shards, &mut slots);
        }
        slots
    }

    fn allocate_pool(
        &mut self,
        now_ms: u64,
        pool: (u32, bool),
        workers: &[u64],
        shards: &[DemandSnapshot],
        slots: &mut [SlotChanges],
    ) {
        let is_single_shard = pool.1;
        let before: Vec<WorkerSlots> =
            workers.iter().map(|worker| self.worker_slots(*worker, shards)).collect();
        let allocatable =
            |slots: &WorkerSlots| if is_single_shard { slots.as_single_slot() } else { slots.trimmed() };
        let mut worker_slots: Vec<WorkerSlots> = before.iter().map(allocatable).collect();
        let no_demand = ShardDemand::default();
        let of_shard = |shard: &DemandSnapshot| {
            let pool = shard.workers[&workers[0]].pool;
            shard.demands.get(&pool).unwrap_or(&no_demand).clone()
        };
        let shard_demands: Vec<ShardDemand> = shards.iter().map(of_shard).collect();
        let needs_slots = shard_demands.iter().any(ShardDemand::needs_slots);
        let pending: u32 = before.iter().map(|slots| slots.pending).sum();
        if !needs_slots && pending == 0 && (is_single_shard || worker_slots == before) {
            return;
        }
        let units: u64 = worker_slots.iter().map(WorkerSlots::units).sum();
        let last = self.last_allocations.entry(pool).or_default();
        let interval_ms = if is_single_shard { SINGLE_SHARD_INTERVAL_MS } else { INTERVAL_MS };
        if last.slots.iter().sum::<u64>() != units || now_ms >= last.at_ms + interval_ms {
            let all = shard_demands.iter().map(|demand| demand.slots).sum::<u64>() + u64::from(pending);
            let tenants: Vec<Vec<TenantDemand>> =
                shard_demands.into_iter().map(|demand| demand.tenants).collect();
            last.slots = last.apportioner.apportion(units, &due_slots(&tenants, all));
            last.at_ms = now_ms;
        }
        move_slots(&last.slots, &mut worker_slots, needs_slots);
        for ((&worker, before), worker_slots) in workers.iter().zip(&before).zip(&worker_slots) {
            let slots_per_unit = if is_single_shard { before.units() as u32 } else { 1 };
            for (shard, (units, before)) in worker_slots.allotted.iter().zip(&before.allotted).enumerate() {
                let now = units * slots_per_unit;
                if now != *before {
                    let ahead = if now > 0 { worker_slots.ahead.max(self.workers[&worker].ahead) } else { 0 };
                    slots[shard].push((worker, now, ahead));
                }
            }
        }
    }

    fn worker_slots(&self, worker: u64, shards: &[DemandSnapshot]) -> WorkerSlots {
        let AllocatedWorker { slots, ahead, pending } = self.workers[&worker];
        let held = shards.iter().map(|shard| shard.workers[&worker].held).collect();
        let allotted = allotted_slots(worker, shards).unwrap_or_default();
        WorkerSlots { slots, ahead, pending: pending.unwrap_or(0), allotted, held }
    }

    /// Compares the shards before and after the changes, and updates the unallocated slots.
    pub fn update_pending(&mut self, before: &[DemandSnapshot], now: &[DemandSnapshot]) {
        for (&worker, known) in &mut self.workers {
            let sum = |shards| allotted_slots(worker, shards).map(|allotted| allotted.iter().sum::<u32>());
            let (Some(pending), Some(before), Some(now)) = (known.pending, sum(before), sum(now)) else {
                continue;
            };
            known.pending = Some((before + pending).saturating_sub(now).min(known.slots.saturating_sub(now)));
        }
    }
}

/// Slots of a worker in each shard; `None` if a shard does not know the worker.
fn allotted_slots(worker: u64, shards: &[DemandSnapshot]) -> Option<Vec<u32>> {
    shards.iter().map(|shard| Some(shard.workers.get(&worker)?.allotted)).collect()
}

impl DemandSnapshot {
    /// Creates a snapshot of a shard for those of the given workers that the shard knows.
    pub fn new(state: &SchedulerState, workers: &[u64]) -> DemandSnapshot {
        let part = |&id: &u64| {
            let at = state.find_worker(id).ok()?;
            let worker = &state.workers[at];
            let (pool, is_single_shard, held) = (worker.pool, worker.capacity != [0; 2], worker.held.len);
            Some((id, WorkerShare { pool, is_single_shard, allotted: state.allotted_slots(at), held }))
        };
        let workers: BTreeMap<u64, WorkerShare> = workers.iter().filter_map(part).collect();
        let pools: BTreeSet<u32> = workers.values().map(|part| part.pool).collect();
        let demands = pools.into_iter().map(|pool| (pool, state.shard_demand(pool))).collect();
        DemandSnapshot { workers, demands }
    }
}

impl SchedulerState {
    /// The demand of this shard's tenants for a pool's workers, and the number of these workers' slots that this shard
    /// has.
    fn shard_demand(&self, pool_at: u32) -> ShardDemand {
        let mut slots = 0;
        let mut demands: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (at, worker) in self.workers.iter_from(0).filter(|(_, worker)| worker.pool == pool_at) {
            slots += u64::from(self.allotted_slots(at));
            worker
                .held
                .iter(&self.tasks)
                .for_each(|(_, task)| demands.entry(task.tenant).or_default().0 += 1);
        }
        let pool = &self.pools[pool_at as usize];
        for &class in pool.classes.iter() {
            for &(_, lane) in &self.classes[class as usize].ranked_lanes {
                let lane = &self.lanes[lane as usize];
                if pool.serves.accepts_tenant(&self.tenants[lane.tenant as usize].name) {
                    demands.entry(lane.tenant).or_default().1 += u64::from(lane.len);
                }
            }
        }
        if self.unused_reserve[0] > 0 {
            let with_reserve = self.tenants.iter().enumerate();
            let with_reserve = with_reserve.filter(|(_, tenant)| {
                tenant.quotas[0].reserved > 0 && pool.serves.accepts_tenant(&tenant.name)
            });
            for (at, _) in with_reserve {
                demands.entry(at as u32).or_default();
            }
        }
        let tenants = demands.into_iter().map(|(tenant, (held, ready))| {
            let tenant = &self.tenants[tenant as usize];
            let quota: &Quota = &tenant.quotas[0];
            let room = quota.most().map_or(u64::MAX, |most| most.saturating_sub(tenant.used[0].now));
            let demand = held + ready.min(room);
            TenantDemand { demand, weight: tenant.weight, reserved: quota.reserved_amount() }
        });
        ShardDemand { tenants: tenants.collect(), slots }
    }

    fn allotted_slots(&self, at: u32) -> u32 {
        let worker = &self.workers[at];
        let held_ahead = self.ahead.get(&at).map_or(0, |ahead| ahead.held);
        (worker.credit + worker.held.len).saturating_sub(held_ahead)
    }

    /// Whether at least one task waits only because none of the workers with slots in this shard has room for it.
    pub fn has_waiting_tasks(&self) -> bool {
        self.classes.iter().any(|class| !class.ranked_lanes.is_empty())
    }
}
