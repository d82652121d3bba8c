//! Where what is published goes: a topic for each subject, looked up once.
//!
//! A topic that was made for what is published stays if something of it is taken.
//!
//! Limit: `targets_max` subjects are remembered; then all are forgotten, and looked up again.

use std::collections::HashMap;
use std::sync::Arc;

use dunlin::topic::{PublisherPlace, Subject, Topic};
use dunlin::{Node, Owner, TopicError};

use super::inboxes::{self, is_inbox};

/// The topics that the connection publishes to, by subject; those of one inbox together.
#[derive(Debug, Default)]
pub(super) struct Targets(HashMap<Box<str>, Remembered>);

/// In this order: the place is given up before its topic may be taken back.
#[derive(Debug)]
struct Remembered {
    place: PublisherPlace,
    _owner: Owner,
}

/// Where a subject's records go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) topic: &'a Arc<Topic>,
    /// What the records carry of the subject.
    pub(super) tail: &'a str,
}

/// Why there is nowhere to go.
#[derive(Debug)]
pub(super) enum NoTarget {
    /// It is no subject.
    Unsound,
    /// Nobody there, as it often is with an inbox or with what this server does not offer.
    Nobody,
    Refused(TopicError),
}

impl Targets {
    /// The topic of a subject; makes one where the node does that for a record with so large a payload.
    #[inline]
    pub(super) fn find<'a>(
        &'a mut self,
        node: &Node,
        subject: &'a [u8],
        payload_bytes: usize,
        targets_max: usize,
    ) -> Result<Target<'a>, NoTarget> {
        let subject = std::str::from_utf8(subject).map_err(|_| NoTarget::Unsound)?;
        if is_inbox(subject) {
            // The rest of it is a new one each time.
            Subject::parse(subject).map_err(|_| NoTarget::Unsound)?;
        }
        let key = key(subject);
        if !self.0.contains_key(key) {
            let owner = find(node, subject, payload_bytes)?;
            if self.0.len() >= targets_max {
                self.0.clear();
            }
            self.0.insert(key.into(), Remembered { place: owner.publisher_place(), _owner: owner });
        }
        let topic: &Arc<Topic> = &self.0[key].place;
        let prefix = &topic.logs()[0].name().subject_prefix;
        Ok(Target { topic, tail: subject.strip_prefix(prefix.as_str()).unwrap_or("") })
    }

    /// Whether the subject's topic was looked up before.
    pub(super) fn knows(&self, subject: &[u8]) -> bool {
        std::str::from_utf8(subject).is_ok_and(|subject| self.0.contains_key(key(subject)))
    }

    /// The topic of this subject is closed, or refuses what is published to it.
    pub(super) fn forget(&mut self, subject: &[u8]) {
        if let Ok(subject) = std::str::from_utf8(subject) {
            self.0.remove(key(subject));
        }
    }
}

/// What the topic is remembered by.
fn key(subject: &str) -> &str {
    if is_inbox(subject) { inboxes::key(subject) } else { subject }
}

fn find(node: &Node, subject: &str, payload_bytes: usize) -> Result<Owner, NoTarget> {
    let parsed = Subject::parse(subject).map_err(|_| NoTarget::Unsound)?;
    match node.owner_for(parsed, payload_bytes) {
        Ok(topic) => Ok(topic),
        Err(TopicError::Reserved(_)) => Err(NoTarget::Nobody),
        Err(TopicError::Unknown(_)) if is_inbox(subject) => Err(NoTarget::Nobody),
        Err(error) => Err(NoTarget::Refused(error)),
    }
}
