//! Why there should be more workers, and for how long that has been so.

/// Why there should be more workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trigger {
    /// Processors are used beyond their target.
    Cpu,
    /// More wait than may.
    Queue,
    /// It takes longer until they start than it may.
    Latency,
    /// By the forecast there will be too few.
    Predictive,
    /// By the schedule.
    Scheduled,
    /// There are fewer than there may be, or one went that nobody sent away.
    Bounds,
}

impl Trigger {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Trigger::Cpu => "cpu",
            Trigger::Queue => "queue",
            Trigger::Latency => "latency",
            Trigger::Predictive => "predictive",
            Trigger::Scheduled => "scheduled",
            Trigger::Bounds => "bounds",
        }
    }
}

/// Since when something has been so without a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Since(Option<u64>);

impl Since {
    /// It is so, or it is not; since when it is.
    pub(crate) fn note(&mut self, is_so: bool, now_ms: u64) -> Option<u64> {
        self.0 = is_so.then(|| self.0.unwrap_or(now_ms));
        self.0
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}
