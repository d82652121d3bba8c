//! The limits of logs and of their groups.

/// Limits of one log and its groups. The defaults suit a node with many topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Maximum number of producers that a log remembers. Above the limit, the log forgets the least recently used
    /// producer, and treats that producer's next record as the record of a new producer.
    pub producers_max: u32,
    /// Maximum number of ranges of appended records that are remembered for each producer. Above the limit, the log
    /// forgets the oldest range, and refuses a retry of that range's records.
    pub producer_outcomes_max: u32,
    /// The size of the history kept beyond the retention for [subscribers that cannot receive
    /// gaps](crate::SubscriberProgress::keep_history), bytes. Kept only while at least half of the memory budget is
    /// free. 0 keeps no such history.
    pub pending_bytes_max: u64,
    /// Maximum number of members of a group. Further members are refused.
    pub group_members_max: u32,
    /// Maximum number of lost ranges that a group member has not received yet. Above the limit, the group merges ranges
    /// into the last one. The merged range states how many records were lost, but not which records.
    pub group_lost_ranges_max: u32,
    /// Maximum number of unconfirmed records per member of a share group. At the limit the member receives no
    /// more.
    pub share_in_flight_max: u32,
    /// Maximum number of claims in flight in a work group. At the limit there are no new claims.
    pub work_claims_max: u32,
    /// Maximum number of claims in flight per member of a work group. At the limit the member gets no new claims.
    pub work_member_claims_max: u32,
    /// Maximum number of records that a work group tracks, beginning with the oldest unsettled record. At the limit,
    /// the group reads no further.
    pub work_look_ahead_max: u32,
    /// Maximum number of a work group's keys that have records waiting behind an unsettled record. At the limit, the
    /// group reads no further.
    pub work_keys_blocked_max: u32,
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits {
            producers_max: 1_024,
            producer_outcomes_max: 128,
            pending_bytes_max: 0,
            group_members_max: 1_024,
            group_lost_ranges_max: 16,
            share_in_flight_max: 1_024,
            work_claims_max: 16_384,
            work_member_claims_max: 1_024,
            work_look_ahead_max: 65_536,
            work_keys_blocked_max: 4_096,
        }
    }
}
