//! Groups of subscribers. The members of a group share the records of a topic.
//!
//! A group is a state machine at the topic's owner. It receives only the sequence numbers and the hashes of the
//! records' keys, not the payloads. The owner lets the group read from a [`RecordSource`], sends the records as the
//! group decides, and passes the current time.
//!
//! - [`ShareGroup`]: each record goes to one member, at most once.
//! - [`WorkGroup`]: a record is claimed until a deadline, and is delivered again unless it is acknowledged.
//!
//! Invariant of both kinds of group: each record is delivered to a member, or reported to the members as
//! [`LostRecords`]. Losses that happen while the group has no member are reported to the next member that joins.
//!
//! Limits: the `group_…`, `share_…` and `work_…` fields of [`LogLimits`](crate::LogLimits).
//!
//! A group belongs to one epoch of one log, so positions are plain sequence numbers. The owner creates a new group for
//! a new epoch.

mod lost;
mod members;
mod share;
mod work;

pub use lost::LostRecords;
pub use members::MemberId;
pub use share::ShareGroup;
pub use work::{
    Claim, ClaimError, DeadCause, DeadLetter, DeadLetterTarget, MemberDeparture, WorkConfig, WorkGroup,
};

/// A source, such as a log, from which a group reads the records that it distributes to its members.
pub trait RecordSource {
    /// The next item of the source, in ascending order; `None` if there is none yet.
    fn next(&mut self) -> Option<SourceItem>;
}

impl<F: FnMut() -> Option<SourceItem>> RecordSource for F {
    fn next(&mut self) -> Option<SourceItem> {
        self()
    }
}

/// An item that a group reads from its source: a record, or a range of lost records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceItem {
    /// The next record.
    Record {
        /// Sequence number of the record. The records between the previous item and this one are not for the group,
        /// which therefore does not receive them.
        seq: u64,
        /// The hash of the record's key, if the record has a key. A group may have to keep records with the same hash
        /// in order.
        key: Option<u64>,
    },
    /// A range of records that the log dropped before the group read them.
    LostRecords {
        /// Sequence number of the first lost record.
        first: u64,
        /// Sequence number of the last lost record.
        last: u64,
    },
}

/// The reason why a group refuses a member or its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The group already has the maximum number of members.
    #[error("the group has {members_max} members, which is its limit")]
    Full {
        /// The maximum number of members.
        members_max: u32,
    },
    /// The group has no such member: the member never joined, has left, or was declared dead.
    #[error("member {0} does not belong to this group")]
    NoMember(MemberId),
}
