//! Simulates how long it takes to add and to remove workers, divided into phases such as detection and decision.

use crate::policy::{Policy, WarmPoolPolicy};
use crate::provider::{InstanceMarket, Provider, ProviderAction};
use crate::sim::scenario::{ServiceTime, SimulationScenario, SubmissionLoad, TenantLoad, WorkerSupply};
use crate::sim::workload::Workload;
use crate::simulated::{ProviderDelays, SimulatedProvider};
use crate::trigger::ScaleOutTrigger;

/// How long the phases of adding workers took in a simulation. They begin when a threshold is exceeded, and end when
/// the workers are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleOutPhases {
    /// The reason for which workers were added.
    pub trigger: ScaleOutTrigger,
    /// The time from when the threshold was exceeded until the scaler took notice, in ms.
    pub detection_ms: u64,
    /// The time from the detection to the decision, in ms.
    pub decision_ms: u64,
    /// The time from the decision until the last worker was ready, in ms.
    pub ready_ms: u64,
    /// The number of added workers.
    pub workers: u32,
}

impl ScaleOutPhases {
    /// Returns the duration of all phases together, in ms.
    pub fn total_ms(&self) -> u64 {
        self.detection_ms + self.decision_ms + self.ready_ms
    }
}

/// How long the phases of removing a worker took in a simulation: cooldown, decision, drain and termination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleInPhases {
    /// The time from when fewer workers were enough until the cooldown was over, in ms.
    pub cooldown_ms: u64,
    /// The time from the end of the cooldown to the decision, in ms.
    pub decision_ms: u64,
    /// The time from the decision until the worker held no task, in ms.
    pub drain_ms: u64,
    /// The time from when the worker held no task until it had ended, in ms.
    pub termination_ms: u64,
}

impl ScaleInPhases {
    /// Returns the duration of all phases together, in ms.
    pub fn total_ms(&self) -> u64 {
        self.cooldown_ms + self.decision_ms + self.drain_ms + self.termination_ms
    }
}

/// The result of a simulation with a warm pool of one size: how long it took to add workers, how many starts failed,
/// and how many instance hours the pool took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmPoolRow {
    /// The number of workers in the warm pool; 0 for no pool.
    pub size: u32,
    /// The time from when the threshold was exceeded until the last added worker was ready, in ms.
    pub total_ms: u64,
    /// The number of simulated starts.
    pub starts: u64,
    /// How many of the simulated starts failed.
    pub failed: u64,
    /// How many instance hours the pool takes in one hour.
    pub warm_hours_per_hour: f64,
}

const SLOW: ServiceTime = ServiceTime { mean_us: 200_000.0, spread: 0.1 };
const STEP_MS: u64 = 20;
/// The time at which the load changes, in ms.
const CHANGE_MS: u64 = 120_000;

/// Simulates how workers are added for each reason. The delays are those of Dunlin's requirements, and no start fails.
pub fn scale_out(seed: u64) -> Vec<ScaleOutPhases> {
    let triggers =
        [ScaleOutTrigger::Cpu, ScaleOutTrigger::Queue, ScaleOutTrigger::Latency, ScaleOutTrigger::Predictive];
    triggers
        .into_iter()
        .filter_map(|trigger| simulate_scale_out(seed, trigger, Policy::cloud(20, 60)))
        .collect()
}

fn simulate_scale_out(seed: u64, trigger: ScaleOutTrigger, mut policy: Policy) -> Option<ScaleOutPhases> {
    // Only `trigger` may add workers. The thresholds of the other triggers are therefore so high that they are never
    // exceeded.
    let triggers = &mut policy.triggers;
    let never = u64::MAX / 4;
    let full = 20.0 * 1e6 / SLOW.mean_us;
    let crowd = |share: f64| Workload::Crowd {
        base_per_s: full * 0.4,
        peak_per_s: full * share,
        from_ms: CHANGE_MS,
        for_ms: never,
    };
    let workload = match trigger {
        ScaleOutTrigger::Queue => crowd(2.0),
        ScaleOutTrigger::Latency => crowd(1.5),
        ScaleOutTrigger::Predictive => Workload::Diurnal {
            low_per_s: full * 0.4,
            high_per_s: full * 1.5,
            day_ms: 3_600_000,
            differ: 0.0,
        },
        _ => crowd(0.9),
    };
    match trigger {
        ScaleOutTrigger::Queue => (triggers.latency_ms_max, triggers.queue_max) = (never, 500),
        ScaleOutTrigger::Latency => triggers.queue_max = never,
        _ => (triggers.latency_ms_max, triggers.queue_max) = (never, never),
    }
    if matches!(trigger, ScaleOutTrigger::Queue | ScaleOutTrigger::Latency) {
        // The load never exceeds this target, so it never causes workers to be added.
        triggers.cpu_target = 1.0;
    }
    let policy =
        if trigger == ScaleOutTrigger::Predictive { policy.with_forecast(75_000, vec![48]) } else { policy };
    let outcome = super::super::run(&scenario(
        seed,
        workload,
        policy,
        ProviderDelays { cold_failures_permille: 0.0, ..ProviderDelays::cloud() },
        if trigger == ScaleOutTrigger::Predictive { 1_200_000 } else { 400_000 },
    ));
    let decision = outcome
        .decisions
        .scale_outs()
        .find(|decision| decision.trigger == trigger && decision.missing == 0)?;
    let decided_ms = decision.decided_ms.max(decision.detected_ms);
    Some(ScaleOutPhases {
        trigger,
        detection_ms: decision.detected_ms - decision.passed_ms,
        decision_ms: decided_ms - decision.detected_ms,
        ready_ms: decision.ready_ms - decided_ms,
        workers: decision.workers,
    })
}

fn scenario(
    seed: u64,
    workload: Workload,
    policy: Policy,
    delays: ProviderDelays,
    duration_ms: u64,
) -> SimulationScenario {
    let supply = WorkerSupply::ScaledFleet {
        workers: policy.workers_min,
        policy: Box::new(policy),
        delays,
        sample_ms: 1_000,
        unix_ms: 0,
        is_oracle: false,
    };
    let tenants = vec![TenantLoad::new("all", SubmissionLoad::Paced(workload))];
    SimulationScenario {
        duration_ms,
        step_ms: STEP_MS,
        service: SLOW,
        ..SimulationScenario::new(seed, tenants, supply)
    }
}

/// Simulates how workers are removed after a burst of tasks. The delays are those of Dunlin's requirements. Returns the
/// phases of the worker that took longest.
pub fn scale_in(seed: u64) -> Option<ScaleInPhases> {
    let full = 40.0 * 1e6 / SLOW.mean_us;
    let workload =
        Workload::Crowd { base_per_s: full * 0.2, peak_per_s: full * 0.65, from_ms: 0, for_ms: CHANGE_MS };
    let mut policy = Policy::cloud(10, 40);
    policy.triggers.cpu_low = 0.5;
    let mut scenario = scenario(seed, workload, policy, ProviderDelays::cloud(), 1_200_000);
    if let WorkerSupply::ScaledFleet { workers, .. } = &mut scenario.supply {
        *workers = 40;
    }
    let outcome = super::super::run(&scenario);
    let rows =
        outcome.decisions.scale_ins().filter(|decision| decision.gone_ms > 0).map(|decision| ScaleInPhases {
            cooldown_ms: decision.cooled_ms - decision.low_ms,
            decision_ms: decision.decided_ms - decision.cooled_ms,
            drain_ms: decision.drained_ms - decision.decided_ms,
            termination_ms: decision.gone_ms - decision.drained_ms,
        });
    // Counts only the removals that were decided first. Later removals have the same `low_ms` although they were
    // decided later, so their cooldown would seem too long.
    let first = outcome.decisions.scale_ins().next()?.decided_ms;
    let count = outcome.decisions.scale_ins().take_while(|decision| decision.decided_ms == first).count();
    rows.take(count).max_by_key(ScaleInPhases::total_ms)
}

/// Simulates one burst of tasks twice: without a warm pool, and with a pool of 20 workers. Also simulates `starts`
/// starts of instances without and with the pool, and counts the failed starts.
pub fn warm_pool(seed: u64, starts: u64) -> Vec<WarmPoolRow> {
    [0, 20].into_iter().filter_map(|size| simulate_warm_pool(seed, size, starts)).collect()
}

fn simulate_warm_pool(seed: u64, size: u32, starts: u64) -> Option<WarmPoolRow> {
    let policy = |size| Policy {
        warm: WarmPoolPolicy { size, detect_ms: 15_000, takes_drained: true },
        ..Policy::cloud(20, 60)
    };
    let delays = ProviderDelays {
        cold_failures_permille: 0.0,
        warm_failures_permille: 0.0,
        ..ProviderDelays::cloud()
    };
    let full = 20.0 * 1e6 / SLOW.mean_us;
    let workload = Workload::Crowd {
        base_per_s: full * 0.4,
        peak_per_s: full * 0.9,
        from_ms: CHANGE_MS,
        for_ms: 600_000,
    };
    let clean = super::super::run(&scenario(seed, workload.clone(), policy(size), delays, 400_000));
    let first = clean
        .decisions
        .scale_outs()
        .find(|decision| decision.trigger == ScaleOutTrigger::Cpu && decision.missing == 0)?;
    let (failed, warm_hours) = (failures(seed, size, starts), clean.warm_hours);
    let hours = clean.ran_ms as f64 / 3.6e6;
    Some(WarmPoolRow {
        size,
        total_ms: first.ready_ms - first.passed_ms,
        starts,
        failed,
        warm_hours_per_hour: warm_hours / hours,
    })
}

/// Simulates `starts` starts, and returns how many of them fail. If `size` is above 0, all of them are starts from the
/// warm pool.
fn failures(seed: u64, size: u32, starts: u64) -> u64 {
    let mut provider = SimulatedProvider::new(ProviderDelays::cloud(), seed);
    let (mut now_ms, mut events) = (0, Vec::new());
    // A failure to start an instance for the pool does not count, because another instance replaces it in the pool.
    for instance in 1.. {
        let (cold, warm) = provider.launches();
        if cold + warm >= starts {
            break;
        }
        provider.act(
            now_ms,
            &ProviderAction::Launch { instance, market: InstanceMarket::OnDemand, is_warm: size > 0 },
        );
        provider.act(now_ms + 45_000, &ProviderAction::Wake { instance });
        now_ms += 100_000;
        provider.events(now_ms, &mut events);
    }
    let (cold, warm) = provider.failures();
    cold + warm
}
