//! What the scaler goes by.

use dunlin_tasks::Signals;

use crate::provider::Instance;

/// The state of a moment, and what was measured since the last.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// Tasks that a worker more could start now. What waits for a quota, a limit, another task or its time does not count.
    pub startable: u64,
    /// For how long the one of them that waits longest has.
    pub oldest_ms: u64,
    /// The share of the workers' processors that tasks used since the last sample, 0 to 1.
    pub cpu: f64,
    /// How many workers that is of, on average: one that came just now had no time to be busy.
    pub workers: f64,
    /// P99 of the time from submission to start, of what started since the last sample; none if nothing did.
    pub latency_ms: Option<u64>,
    /// Tasks that were submitted, in a second.
    pub arrived_per_s: f64,
    /// Tasks that were done, in a second.
    pub done_per_s: f64,
    /// Instances that hold nothing, and since when; those that hold nothing longest first.
    pub idle: Vec<(Instance, u64)>,
    /// The longest timeout of a task that is held.
    pub grace_ms: u64,
}

/// What a scheduler's signals do not say: what was measured since the last sample.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measured {
    /// See [`Sample::cpu`].
    pub cpu: f64,
    /// See [`Sample::workers`].
    pub workers: f64,
    /// See [`Sample::latency_ms`].
    pub latency_ms: Option<u64>,
    /// See [`Sample::arrived_per_s`].
    pub arrived_per_s: f64,
    /// See [`Sample::done_per_s`].
    pub done_per_s: f64,
}

impl Sample {
    /// Of a scheduler's signals; `instance_of` says which instance a worker is, none if it is not of this fleet.
    pub fn new(
        signals: &Signals,
        measured: Measured,
        instance_of: impl Fn(u64) -> Option<Instance>,
    ) -> Sample {
        let Measured { cpu, workers, latency_ms, arrived_per_s, done_per_s } = measured;
        let idle = signals.idle.iter();
        Sample {
            startable: signals.startable,
            oldest_ms: signals.oldest_ms,
            cpu,
            workers,
            latency_ms,
            arrived_per_s,
            done_per_s,
            idle: idle.filter_map(|&(worker, since_ms)| Some((instance_of(worker)?, since_ms))).collect(),
            grace_ms: signals.grace_ms,
        }
    }
}
