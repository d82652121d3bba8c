//! Simulates the workers, as the scheduler sees them, and the instances on which they run.

use std::collections::BTreeMap;

use crate::decision::Decisions;
use crate::fleet::{Fleet, InstancePhase};
use crate::limits::ScalerLimits;
use crate::policy::{Policy, ScaleInPolicy, ScaleOutPolicy, ScaleThresholds, WarmPoolPolicy};
use crate::provider::{InstanceId, InstanceMarket, Provider, ProviderAction, ProviderEvent};
use crate::sample::SchedulerSample;
use crate::scaler::Scaler;
use crate::simulated::{ProviderDelays, SimulatedProvider};

use super::workload::Workload;

/// A simulated worker that has joined the scheduler.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimulatedWorker {
    pub(super) id: u64,
    pub(super) instance: InstanceId,
    /// The time at which the worker will have finished all tasks that it holds, in µs.
    pub(super) free_us: u64,
    pub(super) is_joined: bool,
}

/// A fleet of simulated workers whose size a scaler controls.
pub(super) struct ScaledFleet {
    pub(super) scaler: Scaler,
    pub(super) provider: SimulatedProvider,
    pub(super) sample_ms: u64,
    pub(super) unix_ms: u64,
    pub(super) is_oracle: bool,
    pub(super) next_ms: u64,
    /// The worker on each instance, as an index into the simulation's list of workers.
    pub(super) workers: BTreeMap<InstanceId, u32>,
    /// For how long the fleet has paid for on-demand workers, for spot workers and for the warm pool, in ms.
    pub(super) paid_ms: [u64; 3],
    pub(super) workers_most: u32,
    actions: Vec<ProviderAction>,
    events: Vec<ProviderEvent>,
}

/// A change of the scheduler's workers, caused by an action of the scaler or an event of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchedulerRequest {
    Join(InstanceId),
    Drain(InstanceId),
    Leave(InstanceId),
}

impl ScaledFleet {
    pub(super) fn new(
        policy: &Policy,
        delays: ProviderDelays,
        sample_ms: u64,
        unix_ms: u64,
        is_oracle: bool,
        seed: u64,
    ) -> ScaledFleet {
        let policy = if is_oracle { oracle(policy) } else { policy.clone() };
        ScaledFleet {
            scaler: Scaler::new(policy, ScalerLimits::default()).expect("a scenario's policy is valid"),
            provider: SimulatedProvider::new(delays, seed ^ 0x5CA1E),
            sample_ms: sample_ms.max(1),
            unix_ms,
            is_oracle,
            next_ms: 0,
            workers: BTreeMap::new(),
            paid_ms: [0; 3],
            workers_most: 0,
            actions: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Creates the workers that exist at the start of the run. They do not count as starts in the results.
    pub(super) fn begin(&mut self, workers: u32, requests: &mut Vec<SchedulerRequest>) {
        let policy = self.scaler.policy().clone();
        let first =
            Policy { workers_min: workers.clamp(policy.workers_min, policy.workers_max), ..policy.clone() };
        let is_set = self.scaler.set_policy(first).is_ok();
        assert!(is_set, "a policy that differs in its lower bound alone");
        self.scaler.tick(0, self.unix_ms, &SchedulerSample::default(), &mut self.actions);
        for action in std::mem::take(&mut self.actions) {
            if let ProviderAction::Launch { instance, is_warm, .. } = action {
                self.provider.insert_running(instance, &action);
                let event = if is_warm {
                    ProviderEvent::Prepared { instance }
                } else {
                    ProviderEvent::Ready { instance }
                };
                self.handle_event(0, event, requests);
            }
        }
        let is_set = self.scaler.set_policy(policy).is_ok();
        assert!(is_set, "the policy that was there");
    }

    /// Handles the provider's events up to `now_ms`.
    pub(super) fn poll(&mut self, now_ms: u64, requests: &mut Vec<SchedulerRequest>) {
        while self.provider.next_due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
            let mut events = std::mem::take(&mut self.events);
            self.provider.events(now_ms, &mut events);
            for event in events.drain(..) {
                self.handle_event(now_ms, event, requests);
            }
            self.events = events;
        }
    }

    fn handle_event(&mut self, now_ms: u64, event: ProviderEvent, requests: &mut Vec<SchedulerRequest>) {
        match event {
            ProviderEvent::Ready { instance } => requests.push(SchedulerRequest::Join(instance)),
            ProviderEvent::Gone { instance } => requests.push(SchedulerRequest::Leave(instance)),
            _ => {}
        }
        self.scaler.on_event(now_ms, &event, &mut self.actions);
        self.run_actions(now_ms, requests);
    }

    fn run_actions(&mut self, now_ms: u64, requests: &mut Vec<SchedulerRequest>) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                ProviderAction::Drain { instance, .. } => requests.push(SchedulerRequest::Drain(instance)),
                // The worker leaves at once, and the scheduler gives its tasks to other workers.
                ProviderAction::Terminate { instance } | ProviderAction::Park { instance } => {
                    requests.push(SchedulerRequest::Leave(instance))
                }
                ProviderAction::Launch { .. } | ProviderAction::Wake { .. } => {}
            }
            self.provider.act(now_ms, &action);
        }
    }

    pub(super) fn tick(
        &mut self,
        now_ms: u64,
        sample: &SchedulerSample,
        requests: &mut Vec<SchedulerRequest>,
    ) {
        self.scaler.tick(now_ms, self.unix_ms + now_ms, sample, &mut self.actions);
        self.run_actions(now_ms, requests);
    }

    /// Replaces the load in `sample` by the load that an oracle would use: the highest load within the time that the
    /// launch of a worker takes. Adds a reserve according to square-root staffing (Halfin and Whitt 1981).
    pub(super) fn set_oracle_load(
        &self,
        now_ms: u64,
        sample: &mut SchedulerSample,
        workloads: &[Workload],
        mean_us: f64,
    ) {
        let until_ms = now_ms + self.provider.delays().ready_ms + 2 * self.sample_ms;
        let per_s: f64 = workloads.iter().map(|workload| workload.highest(now_ms, until_ms)).sum();
        let load = per_s * mean_us / 1e6;
        sample.workers = f64::from(self.scaler.fleet().count(InstancePhase::Ready).max(1));
        sample.cpu = (load + 2.0 * load.sqrt()) / sample.workers;
    }

    pub(super) fn charge(&mut self, passed_ms: u64) {
        for (_, member) in self.scaler.fleet().iter() {
            let at = match (member.phase, member.market) {
                (InstancePhase::Warm | InstancePhase::Preparing, _) => 2,
                (_, InstanceMarket::Spot) => 1,
                (_, InstanceMarket::OnDemand) => 0,
            };
            self.paid_ms[at] += passed_ms;
        }
        self.workers_most = self.workers_most.max(self.scaler.fleet().count(InstancePhase::Ready));
    }

    pub(super) fn fleet(&self) -> &Fleet {
        self.scaler.fleet()
    }
}

/// Returns the policy of the oracle, which adds and removes workers without delay.
fn oracle(policy: &Policy) -> Policy {
    let cloud = Policy::cloud(policy.workers_min, policy.workers_max);
    Policy {
        triggers: ScaleThresholds {
            cpu_target: 1.0,
            cpu_low: 1.0,
            queue_max: u64::MAX / 2,
            latency_ms_max: u64::MAX / 2,
            ..cloud.triggers
        },
        scale_out: ScaleOutPolicy {
            detect_ms: 0,
            decide_ms: [0; 4],
            step_percent: 10_000,
            step_workers: u32::MAX,
            step_ms: 1,
        },
        scale_in: ScaleInPolicy {
            cooldown_ms: 0,
            decide_ms: 0,
            step_percent: 100,
            tolerance_percent: 0,
            ..cloud.scale_in
        },
        warm: WarmPoolPolicy::default(),
        ..cloud
    }
}

/// Counts how often workers were added within ten minutes after a removal, or removed within ten minutes after an
/// addition.
pub(super) fn thrash(decisions: &Decisions) -> u64 {
    const WITHIN_MS: u64 = 600_000;
    let scale_outs = decisions.scale_outs().map(|decision| (decision.decided_ms, true));
    let scale_ins = decisions.scale_ins().map(|decision| (decision.decided_ms, false));
    let mut all: Vec<_> = scale_outs.chain(scale_ins).collect();
    all.sort_unstable();
    all.windows(2).filter(|pair| pair[0].1 != pair[1].1 && pair[1].0 - pair[0].0 < WITHIN_MS).count() as u64
}
