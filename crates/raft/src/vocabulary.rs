//! What the words of openraft stand for here.

use std::fmt;

use bytes::Bytes;
use openraft::type_config::alias::{
    EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf,
};

openraft::declare_raft_types!(
    /// Ours.
    pub(crate) Types: D = Proposal, R = Answers, Node = openraft::BasicNode,
);

pub(crate) type LogId = LogIdOf<Types>;
pub(crate) type Vote = VoteOf<Types>;
pub(crate) type Entry = EntryOf<Types>;
pub(crate) type Membership = openraft::Membership<u64, openraft::BasicNode>;
pub(crate) type StoredMembership = StoredMembershipOf<Types>;
pub(crate) type SnapshotMeta = SnapshotMetaOf<Types>;
pub(crate) type Snapshot = SnapshotOf<Types, Blocks>;

/// What stands in one entry of the log: many commands, one after another, each behind its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposal(pub(crate) Bytes);

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What came of each command of an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answers(pub(crate) Vec<Bytes>);

/// A machine's state on its way: from a follower's point of view all of it is there at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Blocks(pub(crate) Vec<Bytes>);
