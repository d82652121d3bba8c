//! How many workers each reason wants.

use crate::forecast::Outlook;
use crate::sample::Sample;

use super::Scaler;

/// Scheduled workers are started so long before their time.
const WINDOW_LEAD_MS: u64 = 120_000;
/// Beyond it processors say nothing of how much more there is to do.
const SATURATED: f64 = 0.97;

/// Workers, by reason; within the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wants {
    /// For processors to be used as they should be.
    pub(super) cpu: u32,
    /// For what waits to be worked off in time.
    pub(super) backlog: u32,
    /// For what is forecast; 0 where nothing is.
    pub(super) forecast: u32,
    /// By the bounds and the schedule.
    pub(super) floor: u32,
    /// By the schedule alone.
    pub(super) scheduled: u32,
}

impl Wants {
    /// The most of it all.
    pub(super) fn most(&self) -> u32 {
        self.cpu.max(self.backlog).max(self.forecast).max(self.floor)
    }
}

impl Scaler {
    pub(super) fn wants(&self, now_ms: u64, unix_ms: u64, sample: &Sample) -> Wants {
        let target = self.policy.triggers.cpu_target;
        let scheduled = self.policy.windows.iter();
        let scheduled = scheduled
            .filter(|window| window.holds(unix_ms) || window.holds(unix_ms.saturating_add(WINDOW_LEAD_MS)))
            .map(|window| window.workers_min)
            .max()
            .unwrap_or(0);
        let cpu = self.bounded(sample.workers * sample.cpu / target);
        let backlog = self.for_rate(sample.done_per_s + self.catch_up_per_s(sample));
        let ahead = self.policy.predictive.as_ref().zip(self.forecaster.as_ref());
        let ahead = ahead.and_then(|(config, forecaster)| forecaster.ahead(now_ms, now_ms + config.lead_ms));
        Wants {
            cpu: if sample.cpu >= SATURATED { cpu.max(backlog) } else { cpu },
            backlog: if sample.startable > 0 { backlog } else { 0 },
            forecast: ahead.map_or(0, |ahead| self.for_rate(ahead.upper)),
            // Where there may be none, what could start is worth one at once.
            floor: self.bounded(f64::from(scheduled)).max(u32::from(sample.startable > 0)),
            scheduled: scheduled.min(self.policy.workers_max),
        }
    }

    /// What it expects at this moment; none where it makes no forecasts.
    pub fn outlook(&self, now_ms: u64) -> Option<Outlook> {
        let (config, forecaster) = self.policy.predictive.as_ref().zip(self.forecaster.as_ref())?;
        let ahead = forecaster.expected(now_ms, now_ms + config.lead_ms);
        Some(Outlook {
            ahead,
            workers: ahead.map_or(0, |ahead| self.for_rate(ahead.upper)),
            is_trusted: forecaster.is_trusted(),
            error: forecaster.error(),
            lead_ms: config.lead_ms,
            history_ms: forecaster.history_ms(),
        })
    }

    /// What has to be done in a second for what could start to be done in time.
    fn catch_up_per_s(&self, sample: &Sample) -> f64 {
        sample.startable as f64 * 1_000.0 / self.policy.triggers.catch_up_ms as f64
    }

    /// Workers for so many tasks in a second; none where their pace is not known.
    fn for_rate(&self, per_s: f64) -> u32 {
        if self.rate > 0.0 { self.bounded(per_s / self.rate / self.policy.triggers.cpu_target) } else { 0 }
    }

    fn bounded(&self, workers: f64) -> u32 {
        // A hair beyond a whole number is rounding.
        let workers = (workers - 1e-6).ceil().clamp(0.0, f64::from(u32::MAX)) as u32;
        workers.clamp(self.policy.workers_min, self.policy.workers_max)
    }
}
