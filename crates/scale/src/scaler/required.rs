//! Computes the number of workers that are required for each reason, such as the load or the schedule.

use crate::forecast::ForecastStatus;
use crate::sample::SchedulerSample;

use super::Scaler;

/// How long before a period of the schedule its workers are already required, in ms.
const WINDOW_LEAD_MS: u64 = 120_000;
/// Above this load, the load itself no longer shows how many more workers are needed.
const SATURATED: f64 = 0.97;

/// The number of workers that each reason requires, within the policy's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RequiredWorkers {
    /// The number of workers with which the load falls to its target.
    pub(super) cpu: u32,
    /// The number of workers with which the waiting tasks are completed in time.
    pub(super) backlog: u32,
    /// The number of workers for the forecast load; 0 if there is no forecast.
    pub(super) forecast: u32,
    /// The number of workers that the policy's minimum and the schedule require.
    pub(super) floor: u32,
    /// The number of workers that the schedule alone requires.
    pub(super) scheduled: u32,
}

impl RequiredWorkers {
    pub(super) fn largest(&self) -> u32 {
        self.cpu.max(self.backlog).max(self.forecast).max(self.floor)
    }
}

impl Scaler {
    pub(super) fn required_workers(
        &self,
        now_ms: u64,
        unix_ms: u64,
        sample: &SchedulerSample,
    ) -> RequiredWorkers {
        let target = self.policy.triggers.cpu_target;
        let scheduled = self.policy.windows.iter();
        let scheduled = scheduled
            .filter(|window| {
                window.contains(unix_ms) || window.contains(unix_ms.saturating_add(WINDOW_LEAD_MS))
            })
            .map(|window| window.workers_min)
            .max()
            .unwrap_or(0);
        let cpu = self.bounded(sample.workers * sample.cpu / target);
        let backlog = self.for_rate(sample.done_per_s + self.catch_up_per_s(sample));
        let ahead = self.policy.predictive.as_ref().zip(self.forecaster.as_ref());
        let ahead = ahead
            .and_then(|(config, forecaster)| forecaster.trusted_forecast(now_ms, now_ms + config.lead_ms));
        RequiredWorkers {
            cpu: if sample.cpu >= SATURATED { cpu.max(backlog) } else { cpu },
            backlog: if sample.startable > 0 { backlog } else { 0 },
            forecast: ahead.map_or(0, |ahead| self.for_rate(ahead.upper)),
            // If a task could start now, at least one worker is required, even if the policy's minimum is 0.
            floor: self.bounded(f64::from(scheduled)).max(u32::from(sample.startable > 0)),
            scheduled: scheduled.min(self.policy.workers_max),
        }
    }

    /// Returns the present forecast and its error; `None` if the policy uses no forecasts.
    pub fn forecast_status(&self, now_ms: u64) -> Option<ForecastStatus> {
        let (config, forecaster) = self.policy.predictive.as_ref().zip(self.forecaster.as_ref())?;
        let ahead = forecaster.peak_forecast(now_ms, now_ms + config.lead_ms);
        Some(ForecastStatus {
            ahead,
            workers: ahead.map_or(0, |ahead| self.for_rate(ahead.upper)),
            is_trusted: forecaster.is_trusted(),
            error: forecaster.error(),
            lead_ms: config.lead_ms,
            history_ms: forecaster.history_ms(),
        })
    }

    /// Returns how many of the waiting tasks must be completed per second, so that all of them are done within
    /// `catch_up_ms`.
    fn catch_up_per_s(&self, sample: &SchedulerSample) -> f64 {
        sample.startable as f64 * 1_000.0 / self.policy.triggers.catch_up_ms as f64
    }

    /// Returns the number of workers that complete `per_s` tasks per second at the target load; 0 if a worker's rate is
    /// unknown.
    fn for_rate(&self, per_s: f64) -> u32 {
        if self.rate > 0.0 { self.bounded(per_s / self.rate / self.policy.triggers.cpu_target) } else { 0 }
    }

    fn bounded(&self, workers: f64) -> u32 {
        // Rounds up. The subtraction ensures that no worker is added because of a rounding error.
        let workers = (workers - 1e-6).ceil().clamp(0.0, f64::from(u32::MAX)) as u32;
        workers.clamp(self.policy.workers_min, self.policy.workers_max)
    }
}
