//! The scaler: looks, waits until it is sure, decides.
//!
//! ```text
//!  more:   threshold passed ── detect_ms, without a break ──► detected ── decide_ms ──► decided ── provider ──► ready
//!  fewer:  fewer would do ── cooldown_ms, all the time ──► cooled ── decide_ms ──► decided ── drained ──► gone, or warm
//! ```
//!
//! How many is a matter of what the busiest of its reasons wants (`scaler/want.rs`); when, of the phases above (`scaler/out.rs`,
//! `scaler/inward.rs`); what providers say is taken in by `scaler/events.rs`.

mod events;
mod inward;
mod out;
mod want;

use std::collections::VecDeque;

use crate::decision::Decisions;
use crate::fleet::Fleet;
use crate::forecast::Forecaster;
use crate::limits::Limits;
use crate::policy::{Policy, PolicyError};
use crate::provider::Action;
use crate::sample::Sample;
use crate::trigger::Since;

use inward::Highest;

/// Decides how many workers there are.
#[derive(Debug, Clone)]
pub struct Scaler {
    policy: Policy,
    limits: Limits,
    fleet: Fleet,
    decisions: Decisions,
    forecaster: Option<Forecaster>,
    /// Tasks that a worker does in a second when it is busy, as measured; 0 before it was.
    rate: f64,
    /// Since when each threshold is passed: processors, queue, latency, forecast.
    passed: [Since; 4],
    /// How many were added when, within the last step.
    added: VecDeque<(u64, u32)>,
    /// Since when fewer would do, and the most that were wanted in the time of a cool-down.
    fewer: Since,
    highest: Highest,
    /// Not before are there fewer again.
    next_in_ms: u64,
    /// Launches that failed one after another, and until when there are none for that.
    failures: u32,
    paused_until_ms: u64,
    /// Decisions of which one is to be launched when that is over.
    owed: Vec<Option<u64>>,
    /// When spot instances were refused or taken away, lately; and until when there are none.
    spot_trouble: VecDeque<u64>,
    on_demand_until_ms: u64,
}

impl Scaler {
    /// With nobody yet: the first tick launches `workers_min`.
    pub fn new(policy: Policy, limits: Limits) -> Result<Scaler, PolicyError> {
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
            highest: Highest::default(),
            next_in_ms: 0,
            failures: 0,
            paused_until_ms: 0,
            owed: Vec::new(),
            spot_trouble: VecDeque::new(),
            on_demand_until_ms: 0,
        })
    }

    /// Another policy, from now on. What was learnt for forecasts is kept where they are to be made the same way.
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

    /// What tasks arrived in a second before now, as means over the forecast's buckets.
    pub fn learn(&mut self, now_ms: u64, means: impl IntoIterator<Item = f64>) {
        if let Some(forecaster) = &mut self.forecaster {
            forecaster.learn(now_ms, means);
        }
    }

    /// How many tasks a busy worker does in a second, where that is known before one has worked.
    pub fn expect_rate(&mut self, per_s: f64) {
        if per_s.is_finite() && per_s > 0.0 {
            self.rate = per_s;
        }
    }

    /// Looks at a sample, and says what is to be done. `unix_ms` is for schedules alone.
    pub fn tick(&mut self, now_ms: u64, unix_ms: u64, sample: &Sample, actions: &mut Vec<Action>) {
        self.measure(sample);
        if let Some(forecaster) = &mut self.forecaster {
            forecaster.note(now_ms, sample.arrived_per_s);
        }
        let want = self.wants(now_ms, unix_ms, sample);
        self.pay_what_is_owed(now_ms, actions);
        self.scale_out(now_ms, sample, &want, actions);
        self.scale_in(now_ms, sample, &want, actions);
        self.keep_warm(now_ms, actions);
    }

    /// The policy it follows.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The instances it has.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// What it decided.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// The forecasts, if it makes any.
    pub fn forecaster(&self) -> Option<&Forecaster> {
        self.forecaster.as_ref()
    }

    /// Whether it launches on demand for now, because spot instances were refused or taken away.
    pub fn is_without_spot(&self, now_ms: u64) -> bool {
        now_ms < self.on_demand_until_ms
    }

    /// A worker's pace, from what workers did while they were busy.
    fn measure(&mut self, sample: &Sample) {
        let busy = sample.cpu * sample.workers;
        let rate = sample.done_per_s / busy;
        // What little was done in a moment says nothing of the pace.
        if busy >= 0.5 && sample.done_per_s > 0.0 && rate.is_finite() {
            self.rate = if self.rate == 0.0 { rate } else { self.rate + (rate - self.rate) / 8.0 };
        }
    }
}
