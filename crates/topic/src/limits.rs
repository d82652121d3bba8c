//! The limits of logs, and of the groups that read them.

/// The limits of one log and of the groups that read it. The defaults suit a node with many topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Maximum number of producers that a log remembers. A producer is a named publisher with numbered records. Above
    /// the limit, the log forgets the producer that has published nothing for the longest time, and treats its next
    /// record as that of a new producer.
    pub producers_max: u32,
    /// Maximum number of ranges of appended records that the log remembers for each producer, to recognise retries.
    /// Above the limit, the log forgets the oldest range, and refuses a retry of the records in it.
    pub producer_outcomes_max: u32,
    /// How much history beyond the retention a log may keep for [subscribers that cannot receive
    /// gaps](crate::SubscribeOptions::keeps_history), bytes. Such history is kept only while at least half of the
    /// memory budget is free. With 0, a log keeps no such history.
    pub pending_bytes_max: u64,
    /// Maximum number of members of a group. Further members are refused.
    pub group_members_max: u32,
    /// Maximum number of reports of lost ranges that wait for a member of a group. Above the limit, the group merges a
    /// new range into the last one. The merged range states how many records were lost, but not which records.
    pub group_lost_ranges_max: u32,
    /// Maximum number of records of a share group that were delivered to a member and are not confirmed. At the limit,
    /// the member receives no further records.
    pub share_in_flight_max: u32,
    /// Maximum number of open claims of a work group. At the limit, no member can claim a record.
    pub work_claims_max: u32,
    /// Maximum number of open claims of a member of a work group. At the limit, this member cannot claim a record.
    pub work_member_claims_max: u32,
    /// Maximum number of records that a work group tracks, beginning with the oldest record that is not settled. At the
    /// limit, the group reads no further records.
    pub work_look_ahead_max: u32,
    /// Maximum number of keys with records that wait, in a work group, behind an unsettled record with the same key. At
    /// the limit, the group reads no further records.
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
