//! Every bound this crate keeps, in one place.

/// What a log and its groups hold at most. The default suits a node with many topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Producers a log remembers; at one more the least recently used is forgotten, and its next record is
    /// taken as a first contact.
    pub producers_max: u32,
    /// Ranges of outcomes remembered per producer; at one more the oldest is forgotten, and a retry of it is refused.
    pub producer_outcomes_max: u32,
    /// A log keeps so much history, beyond its retention, for [readers that cannot be told of a
    /// loss](crate::Reading::keep_history) and have yet to read it, bytes; only while half of the budget is free. 0 for none.
    pub pending_bytes_max: u64,
    /// Members of a group; one more is refused.
    pub group_members_max: u32,
    /// Lost ranges a member of a group has yet to be told; further ones are merged into the last, which then says
    /// how many of its records were lost, but no longer which.
    pub group_lost_ranges_max: u32,
    /// Records of a `share` group that a member was handed and has not confirmed; it gets no more before it does.
    pub share_handed_max: u32,
    /// Claims in flight in a `work` group; there are no new ones before one ends.
    pub work_claims_max: u32,
    /// Claims in flight of one member of a `work` group; it gets no new ones before one ends.
    pub work_member_claims_max: u32,
    /// Records a `work` group keeps track of, from the oldest that is not settled; it looks no further before one is.
    pub work_look_ahead_max: u32,
    /// Keys of a `work` group with records that wait behind an unsettled one of their key; at so many it looks no
    /// further before one is free.
    pub work_keys_blocked_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            producers_max: 1_024,
            producer_outcomes_max: 128,
            pending_bytes_max: 0,
            group_members_max: 1_024,
            group_lost_ranges_max: 16,
            share_handed_max: 1_024,
            work_claims_max: 16_384,
            work_member_claims_max: 1_024,
            work_look_ahead_max: 65_536,
            work_keys_blocked_max: 4_096,
        }
    }
}
