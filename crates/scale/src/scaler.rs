//! Decides when to add or remove workers. The scaler observes its workers, waits until a threshold has been exceeded
//! long enough, and then decides how many workers to add or remove.
//!
//! ```text
//!  more:   threshold passed ── detect_ms, without a break ──► detected ── decide_ms ──► decided ── provider ──► ready
//!  fewer:  fewer suffice ── cooldown_ms, all the time ──► cooled ── decide_ms ──► decided ── drained ──► gone, or warm
//! ```
//!
//! `scaler/required.rs` computes how many workers each reason requires; the scaler uses the largest number.
//! `scaler/scale_out.rs` and `scaler/scale_in.rs` implement adding and removing workers; `scaler/events.rs` applies the
//! provider's events.

mod events;
mod required;
mod scale_in;
mod scale_out;

use std::collections::VecDeque;

use crate::decision::Decisions;
use crate::fleet::Fleet;
use crate::forecast::Forecaster;
use crate::limits::ScalerLimits;
use crate::policy::{Policy, PolicyError};
use crate::provider::ProviderAction;
use crate::sample::SchedulerSample;
use crate::trigger::Since;

use scale_in::WindowMax;

/// Decides when workers are added or removed, according to a policy.
#[derive(Debug, Clone)]
pub struct Scaler {
    policy: Policy,
    limits: ScalerLimits,
    fleet: Fleet,
    decisions: Decisions,
    forecaster: Option<Forecaster>,
    /// The number of tasks per second that a busy worker completes, as measured or assumed; 0 if this is unknown.
    rate: f64,
    /// For each measurement (load, queue, latency and forecast): since when it has exceeded its threshold.
    exceeded_since: [Since; 4],
    /// The decisions to add workers within the last `step_ms`: the time of each decision, and its number of workers.
    added: VecDeque<(u64, u32)>,
    fewer_since: Since,
    /// The highest number of workers that was required during the last `cooldown_ms`.
    required_max: WindowMax,
    /// The earliest time at which workers may be removed again, in ms.
    next_scale_in_ms: u64,
    /// The number of failed launches in a row. If there are too many, the scaler launches nothing for some time.
    failures: u32,
    /// The time until which the scaler launches nothing, because too many launches have failed, in ms.
    paused_until_ms: u64,
    /// The launches that replace failed launches, and that must wait for the end of the pause. For each launch, the
    /// number of the decision to which it belongs; `None` if it belongs to no decision.
    postponed: Vec<Option<u64>>,
    /// The times at which spot instances were refused or interrupted recently, in ms.
    spot_failures: VecDeque<u64>,
    /// The time until which the scaler launches only on-demand instances, because too many spot instances were refused
    /// or interrupted, in ms.
    on_demand_until_ms: u64,
}

impl Scaler {
    /// Creates a scaler without instances. The first call of `tick` launches `workers_min` workers.
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
            exceeded_since: [Since::default(); 4],
            added: VecDeque::new(),
            fewer_since: Since::default(),
            required_max: WindowMax::default(),
            next_scale_in_ms: 0,
            failures: 0,
            paused_until_ms: 0,
            postponed: Vec::new(),
            spot_failures: VecDeque::new(),
            on_demand_until_ms: 0,
        })
    }

    /// Replaces the policy. The history for forecasts is kept if the new policy has the same rules for forecasts.
    pub fn set_policy(&mut self, policy: Policy) -> Result<(), PolicyError> {
        policy.check(&self.limits)?;
        if policy.predictive != self.policy.predictive {
            let config = policy.predictive.clone();
            self.forecaster = config.map(|config| Forecaster::new(config, self.limits.buckets_max));
        }
        self.policy = policy;
        self.exceeded_since.iter_mut().for_each(Since::clear);
        self.fewer_since.clear();
        Ok(())
    }

    /// Appends past arrival rates to the history for forecasts. Each of `means` is the mean number of tasks per second
    /// in one bucket.
    pub fn learn(&mut self, now_ms: u64, means: impl IntoIterator<Item = f64>) {
        if let Some(forecaster) = &mut self.forecaster {
            forecaster.learn(now_ms, means);
        }
    }

    /// Sets the number of tasks per second that a busy worker is assumed to complete. The scaler uses this number until
    /// it has measured the actual number.
    pub fn assume_rate(&mut self, per_s: f64) {
        if per_s.is_finite() && per_s > 0.0 {
            self.rate = per_s;
        }
    }

    /// Takes a sample, decides, and appends the resulting actions for the provider to `actions`. `unix_ms` is the time
    /// in ms since 1970, for schedules.
    pub fn tick(
        &mut self,
        now_ms: u64,
        unix_ms: u64,
        sample: &SchedulerSample,
        actions: &mut Vec<ProviderAction>,
    ) {
        self.measure(sample);
        if let Some(forecaster) = &mut self.forecaster {
            forecaster.record(now_ms, sample.arrived_per_s);
        }
        let required = self.required_workers(now_ms, unix_ms, sample);
        self.launch_postponed(now_ms, actions);
        self.scale_out(now_ms, sample, &required, actions);
        self.scale_in(now_ms, sample, &required, actions);
        self.refill_warm_pool(now_ms, actions);
    }

    /// Returns the scaler's policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the fleet, which contains the instances.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Returns the scaler's most recent decisions.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// Returns the forecaster; `None` if the policy uses no forecasts.
    pub fn forecaster(&self) -> Option<&Forecaster> {
        self.forecaster.as_ref()
    }

    /// Whether the scaler launches only on-demand instances at `now_ms`, because too many spot instances were refused
    /// or interrupted.
    pub fn is_without_spot(&self, now_ms: u64) -> bool {
        now_ms < self.on_demand_until_ms
    }

    /// Measures how many tasks per second a busy worker completes.
    fn measure(&mut self, sample: &SchedulerSample) {
        let busy = sample.cpu * sample.workers;
        let rate = sample.done_per_s / busy;
        // A sample in which workers are hardly busy does not show how fast a busy worker is.
        if busy >= 0.5 && sample.done_per_s > 0.0 && rate.is_finite() {
            self.rate = if self.rate == 0.0 { rate } else { self.rate + (rate - self.rate) / 8.0 };
        }
    }
}
