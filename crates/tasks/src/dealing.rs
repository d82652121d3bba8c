//! Allocates workers' slots to the shards of a cluster's tasks, so that every tenant gets its share of all
//! slots, regardless of its shard.
//!
//! Each shard shares its part of the slots fairly among its tenants (`give`). This is fair across shards if each shard
//! has as many slots as its tenants' share of all slots. The share follows from the tenants' weights, and is at most
//! the number of slots that they can use ([`due`]). A slot cannot be divided. Remaining slots therefore go to each
//! shard in turn ([`SlotApportioner`]), so that even a single slot is shared over time. [`place`] then selects the
//! workers whose slots move.
//!
//! Each node knows all shards, and allocates the slots of its attached workers. Workers that serve the same tasks are
//! allocated together. A worker that states its processors or memory is allocated to a single shard: two shards cannot
//! both count on the same memory.
//!
//! Invariants:
//! - Slots move only if a shard could use more than it has; unallocated slots are allocated at once.
//! - Allocation is repeated every [`EVERY_MS`], for workers of a single shard every [`EVERY_WHOLE_MS`]. A
//!   moving slot changes its shard when its task is done.
//!
//! Soft quotas order tenants only within their shard.

use std::collections::{BTreeMap, BTreeSet};

use crate::quota::Quota;
use crate::slots::{SlotApportioner, TenantDemand, WorkerSlots, due, place};
use crate::state::SchedulerState;

/// Time between two allocations, ms, by the caller's clock.
const EVERY_MS: u64 = 50;
/// Time between two allocations of workers that each serve a single shard, ms. Such a worker first finishes all its
/// tasks.
const EVERY_WHOLE_MS: u64 = 1_000;

/// Demand and slots of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ShardDemand {
    /// Demand of each tenant that has tasks or reserved capacity.
    wants: Vec<TenantDemand>,
    /// Number of slots that the shard has of these workers, on all nodes.
    slots: u64,
}

impl ShardDemand {
    /// Whether the shard could use more slots.
    fn lacks(&self) -> bool {
        self.wants.iter().map(|want| want.demand.max(want.kept)).sum::<u64>() > self.slots
    }
}

/// The workers of one shard and the slots that its tenants need, from which slots are divided among shards.
#[derive(Debug, Clone, Default)]
pub struct DemandSnapshot {
    workers: BTreeMap<u64, WorkerShare>,
    /// Demand by the shard's pool numbers.
    wanting: BTreeMap<u32, ShardDemand>,
}

/// A worker as one shard knows it: its pool, its slots in this shard, and the tasks that it holds.
#[derive(Debug, Clone, Copy)]
struct WorkerShare {
    pool: u32,
    /// Whether the worker states its processors or memory, and therefore serves a single shard.
    is_whole: bool,
    allotted: u32,
    held: u32,
}

/// The workers' new limits in one shard: slots, and tasks held in advance, for each worker.
pub type SlotChanges = Vec<(u64, u32, u32)>;

/// Divides the slots of workers among the shards of the task scheduler.
#[derive(Debug, Clone, Default)]
pub struct SlotAllocator {
    workers: BTreeMap<u64, DealtWorker>,
    dealt: BTreeMap<(u32, bool), LastAllocation>,
}

/// A worker whose slots are allocated to shards.
#[derive(Debug, Clone, Copy)]
struct DealtWorker {
    /// Number of slots.
    slots: u32,
    ahead: u32,
    /// Unallocated slots; `None` for a new worker.
    pending: Option<u32>,
}

/// The last allocation to shards, for all workers that serve the same tasks.
#[derive(Debug, Clone, Default)]
struct LastAllocation {
    dealer: SlotApportioner,
    dealt: Vec<u64>,
    at_ms: u64,
}

impl SlotAllocator {
    /// Adds a worker, or sets its slots and tasks ahead.
    pub fn came(&mut self, worker: u64, slots: u32, ahead: u32) {
        self.workers.insert(worker, DealtWorker { slots, ahead, pending: None });
    }

    /// Keeps only the workers for which `is_there` is true.
    pub fn keep(&mut self, is_there: impl Fn(u64) -> bool) {
        self.workers.retain(|worker, _| is_there(*worker));
    }

    /// All workers.
    pub fn workers(&self) -> Vec<u64> {
        self.workers.keys().copied().collect()
    }

    /// Whether slots wait for a task to end, or for a shard to become known.
    pub fn is_open(&self) -> bool {
        self.workers.values().any(|known| known.pending != Some(0))
    }

    /// Computes the changes for each shard, in the order of shards. Pass the changed shards to
    /// [`SlotAllocator::settle`]. `now_ms` is the caller's time.
    pub fn deal(&mut self, now_ms: u64, shards: &[DemandSnapshot]) -> Vec<SlotChanges> {
        let mut slots = vec![SlotChanges::new(); shards.len()];
        let Some(home) = shards.first() else { return slots };
        let mut pools: BTreeMap<(u32, bool), Vec<u64>> = BTreeMap::new();
        for (&worker, known) in &mut self.workers {
            // A worker that a shard does not know will attach again, or has ended.
            let Some(has) = allotted(worker, shards) else { continue };
            let has: u32 = has.iter().sum();
            // If a known worker has more slots than before, it has requested them.
            known.slots = known.pending.map_or(known.slots, |pending| known.slots.max(has + pending));
            let rest = known.slots.saturating_sub(has);
            known.pending = Some(known.pending.map_or(rest, |pending| pending.min(rest)));
            let part = &home.workers[&worker];
            pools.entry((part.pool, part.is_whole)).or_default().push(worker);
        }
        self.dealt.retain(|pool, _| pools.contains_key(pool));
        for (pool, workers) in pools {
            self.deal_pool(now_ms, pool, &workers, shards, &mut slots);
        }
        slots
    }

    fn deal_pool(
        &mut self,
        now_ms: u64,
        pool: (u32, bool),
        workers: &[u64],
        shards: &[DemandSnapshot],
        slots: &mut [SlotChanges],
    ) {
        let is_whole = pool.1;
        let before: Vec<WorkerSlots> = workers.iter().map(|worker| self.seat(*worker, shards)).collect();
        let seat = |seat: &WorkerSlots| if is_whole { seat.whole() } else { seat.trimmed() };
        let mut seats: Vec<WorkerSlots> = before.iter().map(seat).collect();
        let nothing = ShardDemand::default();
        let of_shard = |shard: &DemandSnapshot| {
            let pool = shard.workers[&workers[0]].pool;
            shard.wanting.get(&pool).unwrap_or(&nothing).clone()
        };
        let wanting: Vec<ShardDemand> = shards.iter().map(of_shard).collect();
        let lacks = wanting.iter().any(ShardDemand::lacks);
        let pending: u32 = before.iter().map(|seat| seat.pending).sum();
        if !lacks && pending == 0 && (is_whole || seats == before) {
            return;
        }
        let units: u64 = seats.iter().map(WorkerSlots::units).sum();
        let last = self.dealt.entry(pool).or_default();
        let every_ms = if is_whole { EVERY_WHOLE_MS } else { EVERY_MS };
        if last.dealt.iter().sum::<u64>() != units || now_ms >= last.at_ms + every_ms {
            let all = wanting.iter().map(|wanting| wanting.slots).sum::<u64>() + u64::from(pending);
            let wants: Vec<Vec<TenantDemand>> = wanting.into_iter().map(|wanting| wanting.wants).collect();
            last.dealt = last.dealer.deal(units, &due(&wants, all));
            last.at_ms = now_ms;
        }
        place(&last.dealt, &mut seats, lacks);
        for ((&worker, before), seat) in workers.iter().zip(&before).zip(&seats) {
            let of_unit = if is_whole { before.units() as u32 } else { 1 };
            for (shard, (units, before)) in seat.allotted.iter().zip(&before.allotted).enumerate() {
                let now = units * of_unit;
                if now != *before {
                    let ahead = if now > 0 { seat.ahead.max(self.workers[&worker].ahead) } else { 0 };
                    slots[shard].push((worker, now, ahead));
                }
            }
        }
    }

    fn seat(&self, worker: u64, shards: &[DemandSnapshot]) -> WorkerSlots {
        let DealtWorker { slots, ahead, pending } = self.workers[&worker];
        let held = shards.iter().map(|shard| shard.workers[&worker].held).collect();
        let allotted = allotted(worker, shards).unwrap_or_default();
        WorkerSlots { slots, ahead, pending: pending.unwrap_or(0), allotted, held }
    }

    /// Compares the shards before and after the changes, and updates the unallocated slots.
    pub fn settle(&mut self, before: &[DemandSnapshot], now: &[DemandSnapshot]) {
        for (&worker, known) in &mut self.workers {
            let sum = |shards| allotted(worker, shards).map(|has| has.iter().sum::<u32>());
            let (Some(pending), Some(before), Some(now)) = (known.pending, sum(before), sum(now)) else {
                continue;
            };
            known.pending = Some((before + pending).saturating_sub(now).min(known.slots.saturating_sub(now)));
        }
    }
}

/// Slots of a worker in each shard; `None` if a shard does not know it.
fn allotted(worker: u64, shards: &[DemandSnapshot]) -> Option<Vec<u32>> {
    shards.iter().map(|shard| Some(shard.workers.get(&worker)?.allotted)).collect()
}

impl DemandSnapshot {
    /// The state of a shard for those workers that it knows.
    pub fn at(state: &SchedulerState, workers: &[u64]) -> DemandSnapshot {
        let part = |&id: &u64| {
            let at = state.find_worker(id).ok()?;
            let worker = &state.workers[at];
            let (pool, is_whole, held) = (worker.pool, worker.has != [0; 2], worker.held.len);
            Some((id, WorkerShare { pool, is_whole, allotted: state.allotted_of(at), held }))
        };
        let workers: BTreeMap<u64, WorkerShare> = workers.iter().filter_map(part).collect();
        let pools: BTreeSet<u32> = workers.values().map(|part| part.pool).collect();
        let wanting = pools.into_iter().map(|pool| (pool, state.wanting(pool))).collect();
        DemandSnapshot { workers, wanting }
    }
}

impl SchedulerState {
    /// The tenants' demand for a pool's workers, and the number of these workers' slots that this shard has.
    fn wanting(&self, pool_at: u32) -> ShardDemand {
        let mut slots = 0;
        let mut wants: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (at, worker) in self.workers.iter_from(0).filter(|(_, worker)| worker.pool == pool_at) {
            slots += u64::from(self.allotted_of(at));
            worker.held.iter(&self.tasks).for_each(|(_, task)| wants.entry(task.tenant).or_default().0 += 1);
        }
        let pool = &self.pools[pool_at as usize];
        for &class in pool.classes.iter() {
            for &(_, lane) in &self.classes[class as usize].standing {
                let lane = &self.lanes[lane as usize];
                if pool.serves.is_for(&self.tenants[lane.tenant as usize].name) {
                    wants.entry(lane.tenant).or_default().1 += u64::from(lane.len);
                }
            }
        }
        if self.kept[0] > 0 {
            let kept = self.tenants.iter().enumerate();
            let kept =
                kept.filter(|(_, tenant)| tenant.quotas[0].reserved > 0 && pool.serves.is_for(&tenant.name));
            for (at, _) in kept {
                wants.entry(at as u32).or_default();
            }
        }
        let wants = wants.into_iter().map(|(tenant, (held, ready))| {
            let tenant = &self.tenants[tenant as usize];
            let quota: &Quota = &tenant.quotas[0];
            let room = quota.most().map_or(u64::MAX, |most| most.saturating_sub(tenant.used[0].now));
            TenantDemand { demand: held + ready.min(room), weight: tenant.weight, kept: quota.reserved }
        });
        ShardDemand { wants: wants.collect(), slots }
    }

    fn allotted_of(&self, at: u32) -> u32 {
        let worker = &self.workers[at];
        let given = self.ahead.get(&at).map_or(0, |ahead| ahead.given);
        (worker.credit + worker.held.len).saturating_sub(given)
    }

    /// Whether a task could start for which no worker with slots in this shard has room.
    pub fn is_waiting(&self) -> bool {
        self.classes.iter().any(|class| !class.standing.is_empty())
    }
}
