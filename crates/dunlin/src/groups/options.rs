//! What a member asks for when it joins.

use std::time::Duration;

use dunlin_topic::Start;

use super::dead_letters;

/// How a group gives out records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// Each record to one member, at most once.
    Share,
    /// Each record to one member, again and again until it is acknowledged.
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

/// What a member of a `share` group asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareOptions {
    /// The member's name, which operators see.
    pub member: String,
    /// Where the group starts, when this makes it.
    pub start: Start,
    /// The group delivers nothing of this epoch, nor of an earlier one, when this makes it. It begins with the next epoch, or,
    /// where this one goes on, with the next record. Takes precedence over `start`.
    pub after_epoch: Option<u32>,
    /// On a `reliable` topic: publishers wait for this group, when this makes it.
    pub registered: bool,
    /// It stands when its last member has left, when this makes it. One that does not is ended by
    /// [`Node::end_group`](crate::Node::end_group).
    pub lasting: bool,
    /// Where another node owns the topic, it keeps the membership for a member of this one, which follows the topic from
    /// owner to owner. Without it such a member is refused. Its records count as consumed when they arrive here.
    pub anywhere: bool,
    /// So many records are taken at once. More cost less each, but wait here while other members may be idle,
    /// and are lost with this one.
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
            ahead: 1,
        }
    }
}

/// What a member of a `work` group asks for. All but its name counts for the group that the first member makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkOptions {
    /// The member's name, which operators see.
    pub member: String,
    /// Where the group starts.
    pub start: Start,
    /// On a `reliable` topic: publishers wait for this group.
    pub registered: bool,
    /// How long a claim holds.
    pub claim: Duration,
    /// After so many attempts a record is a dead letter; 0 for never.
    pub attempts_max: u32,
    /// Where dead letters go.
    pub dead_letters: DeadLetters,
}

/// Where records go that were tried in vain as often as they may be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeadLetters {
    /// To the subject `dead.<topic>`.
    #[default]
    Default,
    /// To this subject.
    Subject(String),
    /// Nowhere: they are dropped.
    Drop,
}

impl WorkOptions {
    /// The subject that dead letters of the topic go to, where they go anywhere.
    pub(crate) fn dead_letters_of(&self, topic: &str) -> Option<String> {
        match &self.dead_letters {
            _ if self.attempts_max == 0 => None,
            DeadLetters::Default => Some(dead_letters::default_subject(topic)),
            DeadLetters::Subject(subject) => Some(subject.clone()),
            DeadLetters::Drop => None,
        }
    }
}

impl Default for WorkOptions {
    fn default() -> WorkOptions {
        WorkOptions {
            member: String::new(),
            // Jobs that were published before the first worker came are to be done, too.
            start: Start::Earliest,
            registered: false,
            claim: Duration::from_secs(30),
            attempts_max: 5,
            dead_letters: DeadLetters::Default,
        }
    }
}
