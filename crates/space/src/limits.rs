//! Every bound of a region, in one place.

use crate::handover::HandoverLimits;

/// What one region holds at most. At the limit it refuses, and nothing is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entities.
    pub entities_max: u32,
    /// Ghosts of one neighbour; those beyond are not taken in, and counted.
    pub ghosts_max: u32,
    /// Viewers.
    pub viewers_max: u32,
    /// Reports kept until they are taken; those beyond are counted.
    pub reports_max: u32,
    /// What bounds hand-overs.
    pub handover: HandoverLimits,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            entities_max: 1 << 22,
            ghosts_max: 1 << 20,
            viewers_max: 1 << 16,
            reports_max: 1_024,
            handover: HandoverLimits::default(),
        }
    }
}
