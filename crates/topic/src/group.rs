//! Groups: members that divide a topic's records among them.
//!
//! A group is a state machine at the topic's owner. It sees sequences and hashes of keys, never a
//! payload; the owner feeds it through a [`Source`], which is a cursor underneath, and carries out
//! what it decides. Time is an argument.
//!
//! - [`Share`]: each record goes to one member, at most once.
//! - [`Work`]: a record is claimed until a deadline, and comes again unless it is acknowledged.
//!
//! Invariant of both: a record is given to a member, or is told to the members as [`Lost`]. What is lost
//! while a group has no members is told to the next to join.
//!
//! Limits: the `group_…`, `share_…` and `work_…` fields of [`Limits`](crate::Limits).
//!
//! Not here: epochs. A group belongs to one epoch of one log; when another begins, the owner makes a new one.

mod lost;
mod members;
mod share;
mod work;

pub use lost::Lost;
pub use members::MemberId;
pub use share::Share;
pub use work::{Claim, ClaimError, DeadCause, DeadLetter, Departure, Work, WorkConfig};

/// Where a group's records come from.
pub trait Source {
    /// What comes next in the log, in ascending order; `None` when there is nothing yet.
    fn next(&mut self) -> Option<Incoming>;
}

impl<F: FnMut() -> Option<Incoming>> Source for F {
    fn next(&mut self) -> Option<Incoming> {
        self()
    }
}

/// What a group is fed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// A record.
    Record {
        /// Its sequence; those between it and the one before are of no interest to the group.
        seq: u64,
        /// The hash of its key. Keys that share a hash are held to one order.
        key: Option<u64>,
    },
    /// Records that the log gave up before the group came to them.
    Lost {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
}

/// Why a member was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The group has as many members as it may.
    #[error("the group has {members_max} members, which is its limit")]
    Full {
        /// The limit.
        members_max: u32,
    },
    /// It never joined, or has left, or was declared dead.
    #[error("member {0} is not of this group")]
    NoMember(MemberId),
}
