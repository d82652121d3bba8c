//! The input of the scaler: samples of a scheduler's load.

use dunlin_tasks::Signals;

use crate::provider::InstanceId;

/// The measurements of a task scheduler from which a scaler makes one decision.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SchedulerSample {
    /// Tasks that one more worker could start now. Tasks that wait for a quota, a limit, another task or a time do
    /// not count.
    pub startable: u64,
    /// How long the oldest startable task has waited, in ms.
    pub oldest_ms: u64,
    /// Load of the workers since the last sample, 0 to 1.
    pub cpu: f64,
    /// Mean number of workers since the last sample.
    pub workers: f64,
    /// P99 of the time from submission to start since the last sample, ms; `None` if no task started.
    pub latency_ms: Option<u64>,
    /// Submitted tasks per second.
    pub arrived_per_s: f64,
    /// Completed tasks per second.
    pub done_per_s: f64,
    /// The workers without tasks: their instances, and when they became idle, in ms. The longest idle workers come
    /// first.
    pub idle: Vec<(InstanceId, u64)>,
    /// The longest timeout of a held task, ms.
    pub grace_ms: u64,
}

/// The load of a task scheduler, as measured since the scaler's last sample.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LoadMeasurement {
    /// Load of the workers, 0 to 1.
    pub cpu: f64,
    /// Mean number of workers.
    pub workers: f64,
    /// P99 of the time from submission to start, ms; `None` if no task started.
    pub latency_ms: Option<u64>,
    /// Submitted tasks per second.
    pub arrived_per_s: f64,
    /// Completed tasks per second.
    pub done_per_s: f64,
}

impl SchedulerSample {
    /// Makes a sample. `instance_of` maps a worker to its instance; it returns `None` for a worker that the scaler does
    /// not manage.
    pub fn new(
        signals: &Signals,
        measured: LoadMeasurement,
        instance_of: impl Fn(u64) -> Option<InstanceId>,
    ) -> SchedulerSample {
        let LoadMeasurement { cpu, workers, latency_ms, arrived_per_s, done_per_s } = measured;
        let idle = signals.idle.iter();
        SchedulerSample {
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
