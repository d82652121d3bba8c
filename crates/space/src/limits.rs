//! Limits of a region's entities, ghosts, viewers and reports.

use crate::handover::HandoverLimits;

/// Limits of one region. When the region has reached the limit for some kind of item, it accepts no more items of this
/// kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionLimits {
    /// Maximum number of entities.
    pub entities_max: u32,
    /// Maximum number of ghosts of one neighbour. Further ghosts are dropped and counted.
    pub ghosts_max: u32,
    /// Maximum number of viewers.
    pub viewers_max: u32,
    /// Maximum number of reports kept until they are taken. Further reports are dropped and counted.
    pub reports_max: u32,
    /// Limits of handovers.
    pub handover: HandoverLimits,
}

impl Default for RegionLimits {
    fn default() -> RegionLimits {
        RegionLimits {
            entities_max: 1 << 22,
            ghosts_max: 1 << 20,
            viewers_max: 1 << 16,
            reports_max: 1_024,
            handover: HandoverLimits::default(),
        }
    }
}
