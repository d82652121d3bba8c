//! Groups, whose members share the records of a topic.
//!
//! A group is a state machine at the topic's owner. The group knows sequence numbers and hashes of keys, but no
//! payloads. The owner lets the group read from a [`RecordSource`], carries out the group's decisions, and passes the
//! time as an argument.
//!
//! - [`ShareGroup`]: each record goes to one member, at most once.
//! - [`WorkGroup`]: a record is claimed until a deadline, and is delivered again unless it is acknowledged.
//!
//! Invariant of both kinds of group: each record is delivered to a member, or reported to the members as
//! [`LostRecords`]. Losses that happen while the group has no member are reported to the next member that joins.
//!
//! Limits: the `group_…`, `share_…` and `work_…` fields of [`LogLimits`](crate::LogLimits).
//!
//! Groups ignore epochs: a group belongs to one epoch of one log; the owner creates a new group for a new epoch.

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

/// A source of records, such as a log, whose records a group distributes to its members.
pub trait RecordSource {
    /// The next item of the log, in ascending order; `None` if there is none yet.
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
        /// Sequence number of the record. Records between the previous item and this record are not for the group.
        seq: u64,
        /// The hash of the record's key. The group keeps records with the same hash in order.
        key: Option<u64>,
    },
    /// Records that the log dropped before the group read them.
    LostRecords {
        /// The first lost record.
        first: u64,
        /// The last lost record.
        last: u64,
    },
}

/// The reason why a group refuses a member or its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The group is full.
    #[error("the group has {members_max} members, which is its limit")]
    Full {
        /// The limit.
        members_max: u32,
    },
    /// The member never joined, has left, or was declared dead.
    #[error("member {0} does not belong to this group")]
    NoMember(MemberId),
}
