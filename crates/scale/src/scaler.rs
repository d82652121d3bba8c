//! The scaler observes its workers, waits until a threshold has been exceeded long enough, and decides.
//!
//! ```text
//!  more:   threshold passed ── detect_ms, without a break ──► detected ── decide_ms ──► decided ── provider ──► ready
//!  fewer:  fewer would do ── cooldown_ms, all the time ──► cooled ── decide_ms ──► decided ── drained ──► gone, or warm
//! ```
//!
//! `scaler/want.rs` computes how many workers each reason wants; the largest number counts. `scaler/out.rs` and
//! `scaler/inward.rs` implement the phases; `scaler/events.rs` applies the provider's events.

mod events;
mod inward;
mod out;
mod want;

use std::collections::VecDeque;

use crate::decision::Decisions;
use crate::fleet::Fleet;
use crate::forecast::Forecaster;
use crate::limits::ScalerLimits;
use crate::policy::{Policy, PolicyError};
use crate::provider::ProviderAction;
use crate::sample::SchedulerSample;
use crate::trigger::Since;

use inward::WindowMax;

/// Decides when to add and remove workers, according to a policy.
#[derive(Debug, Clone)]
pub struct Scaler {
    policy: Policy,
    limits: ScalerLimits,
    fleet: Fleet,
    decisions: Decisions,
    forecaster: Option<Forecaster>,
    /// Measured rate of a busy worker, tasks per second; 0 before the first measurement.
    rate: f64,
    /// For each threshold, how long a measurement has exceeded it: processors, queue, latency, forecast.
    passed: [Since; 4],
    /// Times and numbers of workers added within the last step.
    added: VecDeque<(u64, u32)>,
    /// How long fewer workers have sufficed, and the highest wanted number during a cool-down.
    fewer: Since,
    highest: WindowMax,
    /// Earliest time of the next scale-in, ms.
    next_in_ms: u64,
    /// Consecutive failed launches, and the end of the pause after too many.
    failures: u32,
    paused_until_ms: u64,
    /// Decisions whose replacements are launched after the pause.
    postponed: Vec<Option<u64>>,
    /// Recent refusals and interruptions of spot instances, and the time until which the scaler launches
    /// none.
    spot_trouble: VecDeque<u64>,
    on_demand_until_ms: u64,
}

impl Scaler {
    /// Creates a scaler without instances; its first tick launches `workers_min`.
    ///
    /// # Errors
    /// [`PolicyError`] if the policy is invalid.
    pub fn new(policy: Policy, limits: ScalerLimits) -> Result<Scaler, PolicyError> {
        policy.check(&limits)?;
        let forecaster = policy.predictive.clone().map(|config| Forecaster::new(config, limits.buckets_max));
        Ok(Scaler {
            policy,
            limits,
            fleet: Fleet::default(),
            decisions: Decisions::default(),
            forecaster,
            rate: 0.0,
            passed: [Since::default(); 4],
            added: VecDeque::new(),
            fewer: Since::default(),
            highest: WindowMax::default(),
            next_in_ms: 0,
            failures: 0,
            paused_until_ms: 0,
            postponed: Vec::new(),
            spot_trouble: VecDeque::new(),
            on_demand_until_ms: 0,
        })
    }

    /// Replaces the policy. The forecast history is kept unless the forecast settings change.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), PolicyError> {
        policy.check(&self.limits)?;
        if policy.predictive != self.policy.predictive {
            let config = policy.predictive.clone();
            self.forecaster = config.map(|config| Forecaster::new(config, self.limits.buckets_max));
        }
        self.policy = policy;
        self.passed.iter_mut().for_each(Since::clear);
        self.fewer.clear();
        Ok(())
    }

    /// Adds past arrivals per second, as means over the forecast's buckets.
    pub fn learn(&mut self, now_ms: u64, means: impl IntoIterator<Item = f64>) {
        if let Some(forecaster) = &mut self.forecaster {
            forecaster.learn(now_ms, means);
        }
    }

    /// Sets the expected rate of a busy worker, tasks per second, until it is measured.
    pub fn expect_rate(&mut self, per_s: f64) {
        if per_s.is_finite() && per_s > 0.0 {
            self.rate = per_s;
        }
    }

    /// Processes a sample and appends actions. `unix_ms` is the time of day for schedules.
    pub fn tick(
        &mut self,
        now_ms: u64,
        unix_ms: u64,
        sample: &SchedulerSample,
        actions: &mut Vec<ProviderAction>,
    ) {
        self.measure(sample);
        if let Some(forecaster) = &mut self.forecaster {
            forecaster.note(now_ms, sample.arrived_per_s);
        }
        let want = self.wants(now_ms, unix_ms, sample);
        self.launch_postponed(now_ms, actions);
        self.scale_out(now_ms, sample, &want, actions);
        self.scale_in(now_ms, sample, &want, actions);
        self.keep_warm(now_ms, actions);
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The instances.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The decisions.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// The forecaster, if the policy has one.
    pub fn forecaster(&self) -> Option<&Forecaster> {
        self.forecaster.as_ref()
    }

    /// Whether the scaler launches on-demand instances for now, after refusals or interruptions of spot
    /// instances.
    pub fn is_without_spot(&self, now_ms: u64) -> bool {
        now_ms < self.on_demand_until_ms
    }

    /// Updates the rate of a worker from the tasks that busy workers completed.
    fn measure(&mut self, sample: &SchedulerSample) {
        let busy = sample.cpu * sample.workers;
        let rate = sample.done_per_s / busy;
        // Workers with too little work give no information about the rate.
        if busy >= 0.5 && sample.done_per_s > 0.0 && rate.is_finite() {
            self.rate = if self.rate == 0.0 { rate } else { self.rate + (rate - self.rate) / 8.0 };
        }
    }
}
