//! Measures the load of a task scheduler from one sample to the next.
//!
//! The load is the share of the workers' slots that hold tasks, averaged over many observations. Processor time is not
//! used, for two reasons: workers report it only when tasks end, and a task that waits for a disk uses no processor but
//! occupies its slot.

use dunlin_tasks::Signals;

use crate::sample::LoadMeasurement;

/// How many tasks were submitted to a scheduler, and how many have ended, since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedulerTotals {
    /// The number of submitted tasks.
    pub submitted: u64,
    /// The number of completed tasks plus the number of failed attempts, because both have kept a worker busy.
    pub ended: u64,
}

/// Computes averages of a scheduler's load from one decision of the scaler to the next.
#[derive(Debug, Clone, Default)]
pub struct LoadMeter {
    /// The sum of all loads that were observed since the last measurement. A load is the share of the workers' slots
    /// that are in use.
    busy: f64,
    /// The sum of all numbers of workers that were observed since the last measurement.
    workers: f64,
    observations: u32,
    /// The time of the last measurement in ms, and the scheduler's counters at that time.
    last: Option<(u64, SchedulerTotals)>,
}

impl LoadMeter {
    /// Adds an observation of the load. `workers` is the number of ready workers among those that the scaler manages.
    pub fn record(&mut self, signals: &Signals, workers: u32) {
        let slots = signals.held + signals.credit;
        if slots > 0 {
            self.busy += signals.held as f64 / slots as f64;
        }
        self.workers += f64::from(workers);
        self.observations += 1;
    }

    /// Returns the averages and the rates since the last measurement.
    pub fn measure(&mut self, now_ms: u64, totals: SchedulerTotals) -> LoadMeasurement {
        let (last_ms, before) = self.last.replace((now_ms, totals)).unwrap_or((now_ms, totals));
        let per_s = |now: u64, before: u64| match now_ms.saturating_sub(last_ms) {
            0 => 0.0,
            // If another node has become the leader, its counter may be lower than that of the previous leader. The
            // difference then counts as 0.
            passed_ms => now.saturating_sub(before) as f64 * 1_000.0 / passed_ms as f64,
        };
        let observations = f64::from(self.observations.max(1));
        let measured = LoadMeasurement {
            cpu: self.busy / observations,
            workers: self.workers / observations,
            latency_ms: None,
            arrived_per_s: per_s(totals.submitted, before.submitted),
            done_per_s: per_s(totals.ended, before.ended),
        };
        (self.busy, self.workers, self.observations) = (0.0, 0.0, 0);
        measured
    }
}
