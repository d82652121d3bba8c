//! The options with which a member joins a group.

use std::time::Duration;

use dunlin_topic::{DeadLetterTarget, Start};

/// The kind of a group, which decides how records go to its members: `share` or `work`.
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

/// Options with which a member joins a `share` group.
/// Some of them apply only if this member creates the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareOptions {
    /// The member's name, which operators see.
    pub member: String,
    /// Where the group starts, if this member creates it.
    pub start: Start,
    /// For a member that was in the group before, at this or an earlier owner: the last epoch in which it was a member.
    /// If this member creates the group here and the topic's present epoch is later than this epoch, the group begins
    /// with the present epoch. If the present epoch is not later, the group begins with the next record. Takes
    /// precedence over `start`.
    pub after_epoch: Option<u32>,
    /// Whether publishers wait for the group, if this member creates it on a `reliable` topic.
    pub registered: bool,
    /// Whether the group remains when its last member has left, if this member creates the group.
    /// [`Node::end_group`](crate::Node::end_group) ends a group that does not remain.
    pub lasting: bool,
    /// Whether the member may join at another node if that node owns the topic. The membership then follows the topic,
    /// and records count as consumed when they arrive at this node. Without this option, the member is refused if
    /// another node owns the topic.
    pub anywhere: bool,
    /// The user whose number of groups increases if this member creates the group. Set for a client of another node.
    /// Ignored if the node handle belongs to a user.
    pub for_user: Option<String>,
    /// The number of records that the member takes at once. A higher number makes each record cheaper. But records that
    /// were taken wait here while other members may be idle, and are lost if this member dies.
    pub ahead: u32,
}

impl Default for ShareOptions {
    fn default() -> ShareOptions {
        ShareOptions {
            member: String::new(),
            start: Start::Latest,
            after_epoch: None,
            registered: false,
            lasting: true,
            anywhere: false,
            for_user: None,
            ahead: 1,
        }
    }
}

/// Options with which a member joins a `work` group.
/// Except for the member's name, they apply only if this member creates the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkOptions {
    /// The member's name, which operators see.
    pub member: String,
    /// Where the group starts.
    pub start: Start,
    /// Whether publishers wait for this group, if the topic is `reliable`.
    pub registered: bool,
    /// How long a claim lasts.
    pub claim: Duration,
    /// The number of attempts after which a record becomes a dead letter; 0 for no limit.
    pub attempts_max: u32,
    /// The destination of dead letters.
    pub dead_letters: DeadLetterTarget,
}

impl WorkOptions {
    /// The subject of the topic's dead letters, if they are kept.
    pub(crate) fn dead_letters_of(&self, topic: &str) -> Option<String> {
        if self.attempts_max == 0 { None } else { self.dead_letters.subject_for(topic) }
    }
}

impl Default for WorkOptions {
    fn default() -> WorkOptions {
        WorkOptions {
            member: String::new(),
            // Records that were published before the first member joined are delivered too.
            start: Start::Earliest,
            registered: false,
            claim: Duration::from_secs(30),
            attempts_max: 5,
            dead_letters: DeadLetterTarget::Default,
        }
    }
}
