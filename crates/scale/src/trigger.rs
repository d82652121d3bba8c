//! Defines the reasons for which a scaler adds workers, and a value that stores since when such a reason has applied.

/// The reason for which a scaler adds workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScaleOutTrigger {
    /// The load of the workers exceeds its target.
    Cpu,
    /// More tasks wait than the policy allows.
    Queue,
    /// Tasks wait longer for their start than the policy allows.
    Latency,
    /// The forecast load requires more workers.
    Predictive,
    /// The schedule requires more workers.
    Scheduled,
    /// There are fewer workers than the minimum, for example because an instance has ended.
    Bounds,
}

impl ScaleOutTrigger {
    /// Returns the name of the trigger.
    pub fn name(self) -> &'static str {
        match self {
            ScaleOutTrigger::Cpu => "cpu",
            ScaleOutTrigger::Queue => "queue",
            ScaleOutTrigger::Latency => "latency",
            ScaleOutTrigger::Predictive => "predictive",
            ScaleOutTrigger::Scheduled => "scheduled",
            ScaleOutTrigger::Bounds => "bounds",
        }
    }
}

/// Stores since when a condition has been true without a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Since(Option<u64>);

impl Since {
    /// Sets whether the condition is true now. If it is, returns the time since which it has been true; otherwise
    /// `None`.
    pub(crate) fn update(&mut self, is_true: bool, now_ms: u64) -> Option<u64> {
        self.0 = is_true.then(|| self.0.unwrap_or(now_ms));
        self.0
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}
