//! Divides workers' slots among the shards of the task scheduler.
//!
//! Invariants:
//! - In each round, every shard has a number of due slots ([`due_slots`], a fraction) and a number of assigned slots
//!   ([`SlotApportioner`], a whole number). Over all shards, each of the two numbers adds up to the number of slots.
//!   Over any number of rounds, the sum of a shard's assigned slots differs from the sum of its due slots by less than
//!   the number of shards.
//! - A shard with tasks is always due a part of the slots, and receives a slot after some rounds.
//! - A slot that moves is first taken from its present shard. The other shard receives the slot only when the task in
//!   the slot is done. A worker therefore never runs more tasks at the same time than it has slots.

use crate::fairness::fair_shares;

/// The number of slots that a tenant needs among a group of workers, the tenant's weight, and the slots reserved for
/// the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantDemand {
    /// Number of the tenant's tasks that workers hold or that could start now.
    pub demand: u64,
    /// Weight of the tenant compared with other tenants' weights.
    pub weight: u32,
    /// Number of slots that are reserved for the tenant, used or not.
    pub reserved: u64,
}

/// The number of slots that each shard should have for its tenants; this number may be a fraction. Slots that no tenant
/// can use are divided evenly among the shards, so that new tasks find free slots.
pub fn due_slots(shards: &[Vec<TenantDemand>], slots: u64) -> Vec<f64> {
    let tenants: Vec<TenantDemand> = shards.iter().flatten().copied().collect();
    let shares = tenant_shares(&tenants, slots as f64);
    let mut shares = shares.into_iter();
    let mut due: Vec<f64> = shards.iter().map(|tenants| shares.by_ref().take(tenants.len()).sum()).collect();
    let spare = (slots as f64 - due.iter().sum::<f64>()).max(0.0) / shards.len().max(1) as f64;
    due.iter_mut().for_each(|due| *due += spare);
    due
}

/// Divides slots among tenants in proportion to their weights. Each tenant receives at most as many slots as it can
/// use. If possible, each tenant receives at least the slots that are reserved for it.
fn tenant_shares(tenants: &[TenantDemand], slots: f64) -> Vec<f64> {
    let reserved: f64 = tenants.iter().map(|tenant| tenant.reserved as f64).sum();
    let scale = if reserved > slots { slots / reserved } else { 1.0 };
    let floors: Vec<f64> = tenants.iter().map(|tenant| tenant.reserved as f64 * scale).collect();
    let mut fixed = vec![false; tenants.len()];
    loop {
        let open: Vec<usize> = (0..tenants.len()).filter(|at| !fixed[*at]).collect();
        let taken: f64 = (0..tenants.len()).filter(|at| fixed[*at]).map(|at| floors[at]).sum();
        let demands: Vec<f64> = open.iter().map(|at| tenants[*at].demand as f64).collect();
        let weights: Vec<f64> = open.iter().map(|at| f64::from(tenants[*at].weight.max(1))).collect();
        let found = fair_shares(&demands, &weights, (slots - taken).max(0.0));
        let below: Vec<usize> =
            open.iter().zip(&found).filter(|(at, share)| floors[**at] > **share).map(|(at, _)| *at).collect();
        if below.is_empty() {
            let mut shares = floors;
            open.iter().zip(found).for_each(|(at, share)| shares[*at] = share);
            return shares;
        }
        below.into_iter().for_each(|at| fixed[at] = true);
    }
}

/// Divides whole slots among shards, and stores the fraction of a slot that each shard still has to receive.
#[derive(Debug, Clone, Default)]
pub struct SlotApportioner {
    fractions: Vec<f64>,
}

impl SlotApportioner {
    /// Divides `slots` slots in proportion to `due`.
    pub fn apportion(&mut self, slots: u64, due: &[f64]) -> Vec<u64> {
        self.fractions.resize(due.len(), 0.0);
        let all: f64 = due.iter().sum();
        let (even, slots_f) = (slots as f64 / due.len().max(1) as f64, slots as f64);
        let parts: Vec<f64> =
            due.iter().map(|due| if all > 0.0 { due / all * slots_f } else { even }).collect();
        let mut whole_slots: Vec<u64> = parts.iter().map(|part| part.floor() as u64).collect();
        for (fraction, (part, whole)) in self.fractions.iter_mut().zip(parts.iter().zip(&whole_slots)) {
            *fraction = if *part > 0.0 { *fraction + part - *whole as f64 } else { 0.0 };
        }
        for _ in whole_slots.iter().sum::<u64>()..slots {
            let most = (0..whole_slots.len())
                .max_by(|&a, &b| self.fractions[a].total_cmp(&self.fractions[b]).then(b.cmp(&a)));
            let Some(most) = most else { break };
            whole_slots[most] += 1;
            self.fractions[most] -= 1.0;
        }
        whole_slots
    }
}

/// The slots of one worker, and how many of these slots each shard of the task scheduler may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerSlots {
    /// Number of slots.
    pub slots: u32,
    /// Number of tasks that the worker may hold ahead.
    pub ahead: u32,
    /// Number of slots that are allocated to no shard.
    pub pending: u32,
    /// Number of slots of each shard.
    pub allotted: Vec<u32>,
    /// Number of tasks of each shard that the worker holds.
    pub held: Vec<u32>,
}

impl WorkerSlots {
    /// A copy of the worker that has only a single slot, which stands for all its slots. This slot belongs to the shard
    /// that has the most of the worker's slots.
    pub(crate) fn as_single_slot(&self) -> WorkerSlots {
        let most = self
            .allotted
            .iter()
            .enumerate()
            .max_by_key(|(at, allotted)| (**allotted, std::cmp::Reverse(*at)));
        let most = most.filter(|(_, allotted)| **allotted > 0).map(|(at, _)| at);
        WorkerSlots {
            slots: 1,
            ahead: 0,
            pending: u32::from(most.is_none() && self.pending > 0),
            allotted: (0..self.allotted.len()).map(|at| u32::from(most == Some(at))).collect(),
            held: self.held.iter().map(|held| u32::from(*held > 0)).collect(),
        }
    }

    /// A copy of the worker in which no more slots are allocated than the worker has. This is needed because a worker
    /// may have fewer slots after a reconnection than before.
    pub(crate) fn trimmed(&self) -> WorkerSlots {
        let mut trimmed = self.clone();
        for _ in self.slots..self.allotted.iter().sum() {
            if let Some(most) = trimmed.allotted.iter_mut().max() {
                *most -= 1;
            }
        }
        trimmed
    }

    /// Number of the worker's slots, whether they are allocated to a shard or not; 1 for a copy made by
    /// [`as_single_slot`](WorkerSlots::as_single_slot).
    pub(crate) fn units(&self) -> u64 {
        u64::from(self.pending) + self.allotted.iter().map(|allotted| u64::from(*allotted)).sum::<u64>()
    }

    /// Number of slots that no shard has and no task uses.
    fn free(&self) -> u32 {
        let allotted: u32 = self.allotted.iter().sum();
        let beyond =
            self.allotted.iter().zip(&self.held).map(|(allotted, held)| held.saturating_sub(*allotted));
        let taken = allotted + beyond.sum::<u32>().saturating_sub(self.ahead);
        self.slots.saturating_sub(taken).min(self.pending)
    }
}

/// Moves slots between shards, towards each shard's target number in `targets`. Free slots are assigned first. With
/// `may_take`, further slots are taken from shards that have too many, idle slots first.
pub fn move_slots(targets: &[u64], workers: &mut [WorkerSlots], may_take: bool) {
    let allotted = |shard: usize, workers: &[WorkerSlots]| {
        workers.iter().map(|worker| i64::from(worker.allotted[shard])).sum::<i64>()
    };
    let mut lacking: Vec<i64> =
        targets.iter().enumerate().map(|(at, target)| *target as i64 - allotted(at, workers)).collect();
    for worker in workers.iter_mut() {
        for _ in 0..worker.free() {
            let most = (0..lacking.len()).max_by_key(|at| (lacking[*at], std::cmp::Reverse(*at)));
            let Some(most) = most else { return };
            worker.allotted[most] += 1;
            worker.pending -= 1;
            lacking[most] -= 1;
        }
    }
    let pending: i64 = workers.iter().map(|worker| i64::from(worker.pending)).sum();
    let mut missing = lacking.iter().filter(|lacking| **lacking > 0).sum::<i64>() - pending;
    if !may_take {
        return;
    }
    for (shard, lacking) in lacking.iter_mut().enumerate() {
        for is_busy in [false, true] {
            for worker in workers.iter_mut() {
                let least = if is_busy { 0 } else { worker.held[shard] };
                while missing > 0 && *lacking < 0 && worker.allotted[shard] > least {
                    worker.allotted[shard] -= 1;
                    worker.pending += 1;
                    *lacking += 1;
                    missing -= 1;
                }
            }
        }
    }
}
