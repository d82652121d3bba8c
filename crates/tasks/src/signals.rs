//! What the scaler goes by.

use std::sync::Arc;

use crate::layout::layout;
use crate::state::State;
use crate::task::Stage;

layout! {
    /// The state of a moment, as far as it matters to how many workers there should be.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Signals {
        /// Tasks that a worker more could start now: ready, and not over their tenant's quota. What waits for a limit, another task
        /// or its time does not count.
        pub startable: u64,
        /// For how long the one that waits longest has.
        pub oldest_ms: u64,
        /// Tasks that workers hold.
        pub held: u64,
        /// Tasks that workers would still take.
        pub credit: u64,
        /// Workers that are not to go.
        pub workers: u64,
        /// Of those, the ones that hold nothing, with since when; those that hold nothing longest first, at most a thousand.
        pub idle: Vec<(u64, u64)>,
        /// The same, by kind.
        pub kinds: Vec<KindSignals>,
        /// The longest timeout of a task that is held: who is told to go needs so long.
        pub grace_ms: u64,
    }
}

layout! {
    /// What can be started of a kind.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct KindSignals {
        /// Which.
        pub kind: Arc<[u8]>,
        /// Tasks that a worker more could start now.
        pub startable: u64,
        /// Workers that can.
        pub workers: u64,
    }
}

const IDLE_MAX: usize = 1_000;

impl State {
    /// Looks at every tenant, lane and worker.
    pub fn signals(&self) -> Signals {
        let mut signals = Signals { credit: self.free[0], ..Signals::default() };
        let mut by_kind: std::collections::BTreeMap<u32, (u64, u64)> = std::collections::BTreeMap::new();
        for tenant in self.tenants.iter() {
            let [quota, ..] = tenant.quotas;
            let mut room = quota.most().map_or(u64::MAX, |most| most.saturating_sub(tenant.used[0].now));
            for &lane in &tenant.lanes {
                let lane = &self.lanes[lane as usize];
                let startable = u64::from(lane.len).min(room);
                room -= startable;
                signals.startable += startable;
                by_kind.entry(self.classes[lane.class as usize].kind).or_default().0 += startable;
                if let Some((_, first)) =
                    lane.first(&self.tasks, self.limits.ageing_ms).filter(|_| startable > 0)
                {
                    signals.oldest_ms = signals.oldest_ms.max(self.now_ms - self.tasks[first].since_ms);
                }
            }
        }
        self.look_at_workers(&mut signals);
        for pool in self.pools.iter() {
            pool.serves.kinds.iter().for_each(|kind| by_kind.entry(*kind).or_default().1 += pool.workers);
        }
        signals.kinds = by_kind
            .into_iter()
            .map(|(kind, (startable, workers))| KindSignals {
                kind: self.names.get(kind).clone(),
                startable,
                workers,
            })
            .collect();
        signals
    }

    fn look_at_workers(&self, signals: &mut Signals) {
        for (at, worker) in self.workers.iter_from(0) {
            signals.held += u64::from(worker.held.len);
            let held = worker.held.iter(&self.tasks).filter(|(_, task)| task.stage == Stage::Running);
            let grace_ms = held.map(|(_, task)| u64::from(task.timeout_ms)).max().unwrap_or(0);
            signals.grace_ms = signals.grace_ms.max(grace_ms);
            if worker.is_draining {
                continue;
            }
            signals.workers += 1;
            if worker.held.len == 0 {
                signals.idle.push((worker.idle_ms, self.workers.id(at)));
            }
        }
        signals.idle.sort_unstable();
        signals.idle.truncate(IDLE_MAX);
        signals.idle.iter_mut().for_each(|(since_ms, id)| (*since_ms, *id) = (*id, *since_ms));
    }
}
