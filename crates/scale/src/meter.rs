//! What is measured of a scheduler between two looks of the scaler.
//!
//! How busy workers are is how many of the places that they have are taken, looked at many times and averaged: that is known at once, where processor time
//! is told when a task ends, and a worker that waits for a disk or another machine is as little to be had as one that computes.

use dunlin_tasks::Signals;

use crate::sample::Measured;

/// What was counted since a scheduler began: the sums of all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Tasks that were submitted.
    pub submitted: u64,
    /// Tasks that were done, and attempts that failed: either kept a worker busy.
    pub ended: u64,
}

/// Averages what it is shown until it is asked.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    /// Sums of the share of places that were taken, and of workers, and how many looks that was.
    busy: f64,
    workers: f64,
    looks: u32,
    /// When it was last asked, and what was counted then.
    last: Option<(u64, Totals)>,
}

impl Meter {
    /// So it is at the moment; `workers` of the fleet are ready.
    pub fn note(&mut self, signals: &Signals, workers: u32) {
        let places = signals.held + signals.credit;
        if places > 0 {
            self.busy += signals.held as f64 / places as f64;
        }
        self.workers += f64::from(workers);
        self.looks += 1;
    }

    /// What came of all that was noted since it was last asked.
    pub fn measure(&mut self, now_ms: u64, totals: Totals) -> Measured {
        let (last_ms, before) = self.last.replace((now_ms, totals)).unwrap_or((now_ms, totals));
        let per_s = |now: u64, before: u64| match now_ms.saturating_sub(last_ms) {
            0 => 0.0,
            // Another leader may have counted less.
            passed_ms => now.saturating_sub(before) as f64 * 1_000.0 / passed_ms as f64,
        };
        let looks = f64::from(self.looks.max(1));
        let measured = Measured {
            cpu: self.busy / looks,
            workers: self.workers / looks,
            latency_ms: None,
            arrived_per_s: per_s(totals.submitted, before.submitted),
            done_per_s: per_s(totals.ended, before.ended),
        };
        (self.busy, self.workers, self.looks) = (0.0, 0.0, 0);
        measured
    }
}
