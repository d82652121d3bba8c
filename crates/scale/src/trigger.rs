//! The reasons to add workers, and since when each reason has applied without interruption.

/// The measurement or rule because of which a scaler adds workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScaleOutTrigger {
    /// The load of processors exceeds its target.
    Cpu,
    /// Too many tasks wait.
    Queue,
    /// Tasks wait too long for their start.
    Latency,
    /// The forecast exceeds the capacity.
    Predictive,
    /// The schedule requires more workers.
    Scheduled,
    /// There are fewer workers than the minimum, or an instance disappeared.
    Bounds,
}

impl ScaleOutTrigger {
    /// The trigger's name.
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

/// Measures how long a condition has been true without interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Since(Option<u64>);

impl Since {
    /// Updates the condition. Returns the time since which it has been true; `None` if it is false.
    pub(crate) fn update(&mut self, is_true: bool, now_ms: u64) -> Option<u64> {
        self.0 = is_true.then(|| self.0.unwrap_or(now_ms));
        self.0
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}
