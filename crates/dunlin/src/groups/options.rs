//! The options with which a member joins a group.

use std::time::Duration;

use dunlin_topic::{DeadLetterTarget, Log, Position, Start};

use crate::node::Node;

/// The kind of a group. It decides how the group distributes records to its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// Each record goes to one member, at most once.
    Share,
    /// Each record goes to one member at a time, until a member acknowledges it.
    Work,
}

impl std::fmt::Display for GroupKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            GroupKind::Share => "share",
            GroupKind::Work => "work",
        })
    }
}

/// Describes when a member was last in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierMembership {
    /// The last epoch in which the member was in the group.
    pub epoch: u32,
    /// Whether this membership ended before the last restart of the node that owns the topic.
    pub is_before_restart: bool,
}

impl EarlierMembership {
    /// Creates the description from `at`, the position with which another node asks to join for its member. `at.epoch`
    /// is the last epoch of the earlier membership. `at.seq` is the number of a [run](Node::id): that of the owner that
    /// had accepted the member. `owner` is the present owner.
    pub fn from_position(at: Position, owner: &Node) -> EarlierMembership {
        // Earlier releases of Dunlin send 0 instead of the number of a run.
        EarlierMembership { epoch: at.epoch, is_before_restart: at.seq != 0 && at.seq != owner.id() }
    }

    /// Whether the member was in the group only before the log's [`process_start`](Log::process_start).
    pub(super) fn is_before_start_of(self, log: &Log) -> bool {
        let epoch = log.process_start().epoch;
        self.epoch < epoch || self.epoch == epoch && self.is_before_restart
    }
}

/// Options with which a member joins a `share` group. Some of these options apply only if this member creates the
/// group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareOptions {
    /// The member's name, which operators see.
    pub member: String,
    /// If this member creates the group: the position at which the group starts.
    pub start: Start,
    /// For a member that was in the group before, at this owner or an earlier one: describes this earlier membership.
    /// Takes precedence over `start`. If the member left before the owner's last start or before the topic's present
    /// epoch, the group delivers all records since that start or since the beginning of the epoch. Otherwise the group
    /// begins with the next record.
    pub earlier: Option<EarlierMembership>,
    /// Whether publishers to a `reliable` topic wait for the group, if this member creates it.
    pub registered: bool,
    /// Whether the group continues to exist after its last member has left. Applies if this member creates the group. A
    /// group that is not lasting is ended by [`Node::end_group`](crate::Node::end_group).
    pub lasting: bool,
    /// Whether the member may join the group at another node if that node owns the topic. The membership then follows
    /// the topic to each new owner, and records count as consumed when they arrive at this node. If this option is not
    /// set and another node owns the topic, joining fails.
    pub anywhere: bool,
    /// If this member creates the group, the group counts towards this user's limit on groups. Set if a client of
    /// another node joins. Ignored if the node handle has a user.
    pub for_user: Option<String>,
    /// The number of records that the member takes at once. A higher number makes taking records cheaper. But records
    /// that the member has taken are not delivered to other, idle members, and are lost if this member dies.
    pub ahead: u32,
}

impl Default for ShareOptions {
    fn default() -> ShareOptions {
        ShareOptions {
            member: String::new(),
            start: Start::Latest,
            earlier: None,
            registered: false,
            lasting: true,
            anywhere: false,
            for_user: None,
            ahead: 1,
        }
    }
}

/// Options with which a member joins a `work` group. Except for the member's name, these options apply only if this
/// member creates the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkOptions {
    /// The member's name, which operators see.
    pub member: String,
    /// The position at which the group starts.
    pub start: Start,
    /// Whether publishers to a `reliable` topic wait for this group.
    pub registered: bool,
    /// How long a claim lasts.
    pub claim: Duration,
    /// The number of attempts after which a record becomes a dead letter; 0 means that the number is unlimited.
    pub attempts_max: u32,
    /// The destination of dead letters.
    pub dead_letters: DeadLetterTarget,
}

impl WorkOptions {
    /// The subject for dead letters of a group of `topic`; `None` if the group has no dead letters or drops them.
    pub(crate) fn dead_letters_of(&self, topic: &str) -> Option<String> {
        if self.attempts_max == 0 { None } else { self.dead_letters.subject_for(topic) }
    }
}

impl Default for WorkOptions {
    fn default() -> WorkOptions {
        WorkOptions {
            member: String::new(),
            // By default, the group also delivers records that were published before its first member joined.
            start: Start::Earliest,
            registered: false,
            claim: Duration::from_secs(30),
            attempts_max: 5,
            dead_letters: DeadLetterTarget::Default,
        }
    }
}
