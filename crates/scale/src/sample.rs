//! Defines the samples of a task scheduler's load, from which the scaler decides.

use dunlin_tasks::Signals;

use crate::provider::InstanceId;

/// A sample of a task scheduler's load. The scaler makes one decision from each sample.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SchedulerSample {
    /// The number of waiting tasks that one more worker could start now. This excludes tasks that wait for a quota, a
    /// limit, another task or a time.
    pub startable: u64,
    /// How long the oldest of the startable tasks has waited, in ms.
    pub oldest_ms: u64,
    /// The load of the workers since the last sample: the share of their slots in use, from 0 to 1.
    pub cpu: f64,
    /// The mean number of workers since the last sample.
    pub workers: f64,
    /// The 99th percentile (P99) of the time from a task's submission to its start, for tasks that started since the
    /// last sample, in ms; `None` if no task started.
    pub latency_ms: Option<u64>,
    /// The number of submitted tasks per second.
    pub arrived_per_s: f64,
    /// The number of completed tasks per second.
    pub done_per_s: f64,
    /// The workers without tasks: the instance of each, and the time at which it became idle, in ms. The worker that
    /// has been idle longest comes first.
    pub idle: Vec<(InstanceId, u64)>,
    /// The longest timeout among the tasks that workers hold, in ms.
    pub grace_ms: u64,
}

/// The load of a task scheduler, measured since the scaler's last sample.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LoadMeasurement {
    /// The load of the workers: the share of their slots in use, from 0 to 1.
    pub cpu: f64,
    /// The mean number of workers.
    pub workers: f64,
    /// The 99th percentile (P99) of the time from a task's submission to its start, in ms; `None` if no task started.
    pub latency_ms: Option<u64>,
    /// The number of submitted tasks per second.
    pub arrived_per_s: f64,
    /// The number of completed tasks per second.
    pub done_per_s: f64,
}

impl SchedulerSample {
    /// Creates a sample. `instance_of` returns the instance on which a worker runs, or `None` for a worker that the
    /// scaler does not manage.
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
