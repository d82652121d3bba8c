//! Measures a scheduler's load between two samples.
//!
//! A worker's load is the share of its slots that hold tasks, averaged over many observations. Processor time is not
//! used: workers report it only when tasks end, and a worker that waits for a disk can take no other task either.

use dunlin_tasks::Signals;

use crate::sample::LoadMeasurement;

/// The number of submitted tasks and the number of ended tasks since the scheduler's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedulerTotals {
    /// The number of submitted tasks.
    pub submitted: u64,
    /// The number of completed tasks and failed attempts. Both kept a worker busy.
    pub ended: u64,
}

/// Averages the measured loads of a scheduler between two decisions of the scaler.
#[derive(Debug, Clone, Default)]
pub struct LoadMeter {
    /// The sum of the loads (shares of slots in use), over all observations since the last measurement.
    busy: f64,
    /// The sum of the numbers of workers, over the same observations.
    workers: f64,
    observations: u32,
    /// The time of the last measurement in ms, and the scheduler's counters at that time.
    last: Option<(u64, SchedulerTotals)>,
}

impl LoadMeter {
    /// Adds an observation. `workers` is the number of ready workers that the scaler manages.
    pub fn record(&mut self, signals: &Signals, workers: u32) {
        let slots = signals.held + signals.credit;
        if slots > 0 {
            self.busy += signals.held as f64 / slots as f64;
        }
        self.workers += f64::from(workers);
        self.observations += 1;
    }

    /// Returns the averages and rates since the last measurement.
    pub fn measure(&mut self, now_ms: u64, totals: SchedulerTotals) -> LoadMeasurement {
        let (last_ms, before) = self.last.replace((now_ms, totals)).unwrap_or((now_ms, totals));
        let per_s = |now: u64, before: u64| match now_ms.saturating_sub(last_ms) {
            0 => 0.0,
            // The subtraction stops at 0, because a new leader's counter may be lower than that of its predecessor.
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
