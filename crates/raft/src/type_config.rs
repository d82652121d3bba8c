//! Gives short names to openraft's types with the type parameters that this crate uses.

use std::fmt;

use bytes::Bytes;
use openraft::type_config::alias::{
    EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf,
};

openraft::declare_raft_types!(
    /// The types that this crate uses with openraft.
    pub(crate) Types: D = Proposal, R = EntryResponses, Node = openraft::BasicNode,
);

pub(crate) type LogId = LogIdOf<Types>;
pub(crate) type Vote = VoteOf<Types>;
pub(crate) type LogEntry = EntryOf<Types>;
pub(crate) type Membership = openraft::Membership<u64, openraft::BasicNode>;
pub(crate) type StoredMembership = StoredMembershipOf<Types>;
pub(crate) type SnapshotMeta = SnapshotMetaOf<Types>;
pub(crate) type RaftSnapshot = SnapshotOf<Types, Blocks>;

/// The content of a log entry: the group's time and the commands, each command preceded by its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposal(pub(crate) Bytes);

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The responses to the commands of an entry, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EntryResponses(pub(crate) Vec<Bytes>);

/// The state of a state machine, encoded as blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Blocks(pub(crate) Vec<Bytes>);
