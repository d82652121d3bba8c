//! Describes a node's workers for reports.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dunlin_scale::{ForecastStatus, ScaleIn, ScaleOut};
use serde_json::{Value, json};

use super::WorkersState;

/// A handle that reads the number of a node's workers, the limits of this number, and the recent scaling decisions.
#[derive(Debug, Clone)]
pub struct WorkersView {
    pub(super) shared: Arc<WorkersState>,
    pub(super) workers_min: u32,
    pub(super) workers_max: u32,
    /// The start of the autoscaler's thread, ms since 1970. The times of decisions count from this moment.
    pub(super) began_unix_ms: u64,
}

impl WorkersView {
    /// Describes the workers as JSON. Times are in ms since 1970.
    pub(crate) fn to_json(&self) -> Value {
        let decisions = self.shared.decisions().clone();
        let mut events: Vec<Value> = decisions.out.iter().map(|out| self.scale_out_json(out)).collect();
        events.extend(decisions.inward.iter().map(|inward| self.scale_in_json(inward)));
        events.sort_by_key(|event| event["decided_ms"].as_u64());
        json!({
            "here": true, "min": self.workers_min, "max": self.workers_max,
            "processes": self.shared.processes.load(Ordering::Relaxed),
            "ready": self.shared.ready.load(Ordering::Relaxed),
            "warm": self.shared.warm.load(Ordering::Relaxed),
            "events": events, "forecast": self.shared.forecast().as_ref().map(forecast),
        })
    }

    /// Converts the time of a decision's phase to ms since 1970. `None` if `ms` is 0, because the phase has not ended
    /// yet.
    fn at(&self, ms: u64) -> Option<u64> {
        (ms > 0).then(|| self.began_unix_ms + ms)
    }

    fn scale_out_json(&self, out: &ScaleOut) -> Value {
        json!({
            "kind": "out", "trigger": out.trigger.name(), "workers": out.workers, "woken": out.woken,
            "missing": out.missing, "failed": out.failed,
            "at_ms": self.at(out.decided_ms), "passed_ms": self.at(out.passed_ms),
            "detected_ms": self.at(out.detected_ms), "decided_ms": self.at(out.decided_ms),
            "ready_ms": (out.missing == 0).then(|| self.at(out.ready_ms)),
        })
    }

    fn scale_in_json(&self, inward: &ScaleIn) -> Value {
        json!({
            "kind": "in", "workers": inward.workers, "at_ms": self.at(inward.decided_ms),
            "low_ms": self.at(inward.low_ms), "cooled_ms": self.at(inward.cooled_ms),
            "decided_ms": self.at(inward.decided_ms), "drained_ms": self.at(inward.drained_ms),
            "gone_ms": self.at(inward.gone_ms),
        })
    }
}

/// Describes the autoscaler's forecast as JSON. Values for which the history is too short are null.
fn forecast(status: &ForecastStatus) -> Value {
    let ahead = status.ahead;
    json!({
        "wanted": ahead.map(|_| status.workers), "point_per_s": ahead.map(|ahead| ahead.point),
        "upper_per_s": ahead.map(|ahead| ahead.upper), "error": status.error,
        "used": ahead.is_some() && status.is_trusted, "lead_ms": status.lead_ms,
        "known_ms": status.history_ms.0, "needed_ms": status.history_ms.1,
    })
}
