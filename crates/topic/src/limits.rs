//! Every bound this crate keeps, in one place.

/// What a log and its groups hold at most. The default suits a node with many topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Producers a log remembers; at one more the least recently used is forgotten, and its next record is
    /// taken as a first contact.
    pub producers_max: u32,
    /// Ranges of outcomes remembered per producer; at one more the oldest is forgotten, and a retry of it is refused.
    pub producer_outcomes_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { producers_max: 1_024, producer_outcomes_max: 128 }
    }
}
