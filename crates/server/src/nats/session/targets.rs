//! Caches the topic of each subject to which the connection publishes.
//!
//! A topic that was created for a record stays if one of its records is accepted, and is removed otherwise.
//!
//! Limit: `targets_max` subjects are remembered; above this number, the session forgets all of them and looks them up
//! again.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dunlin::topic::{PublisherRegistration, Subject, Topic};
use dunlin::wire::DecodeOutcome;
use dunlin::wire::nats::{self, NatsDecoderLimits, NatsOperation};
use dunlin::{MissingTopicPolicy, Node, OwningTopic, TopicError, TopicFuture};

use super::inboxes::{self, is_inbox};

/// The topics that the connection publishes to, by subject; all subjects of one inbox share an entry.
#[derive(Debug, Default)]
pub(super) struct PublishTargets {
    by_key: HashMap<Box<str>, CachedTarget>,
    /// The result of a search that another thread made.
    found: Option<(Box<str>, Result<OwningTopic, TopicError>)>,
    /// The inbox that receives the reply that is being published, with the reply's subject. A reply subject is used
    /// only once.
    reply: Option<(Box<str>, PublisherRegistration)>,
}

/// A pending search for the topic of a record, followed by a search for the topics of later records.
pub(super) struct TargetSearch {
    subject: Box<str>,
    owner: TopicFuture<OwningTopic>,
    found: Option<(Result<OwningTopic, TopicError>, TopicFuture<()>)>,
}

/// Maximum number of later subjects for which topics are searched in advance.
const LATER_SUBJECTS_MAX: usize = 256;

/// A cached topic. The order of the fields matters: the publisher must be dropped before its topic may be deleted.
#[derive(Debug)]
struct CachedTarget {
    publisher: PublisherRegistration,
    _owner: OwningTopic,
}

/// The topic for the records of a subject.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublishTarget<'a> {
    pub(super) topic: &'a Arc<Topic>,
    /// The part of the subject that is stored in records.
    pub(super) tail: &'a str,
}

/// The reason why a record has no topic.
#[derive(Debug)]
pub(super) enum TargetError {
    /// The subject has no valid syntax.
    InvalidSubject,
    /// No receiver can exist for the subject: it belongs to a closed inbox, or to a feature that this node does not
    /// have.
    NoReceiver,
    Refused(TopicError),
}

impl<'a> PublishTarget<'a> {
    fn of(topic: &'a Arc<Topic>, subject: &'a str) -> PublishTarget<'a> {
        let prefix = &topic.logs()[0].name().subject_prefix;
        PublishTarget { topic, tail: subject.strip_prefix(prefix.as_str()).unwrap_or("") }
    }
}

impl TargetError {
    fn of(error: TopicError, subject: &str) -> TargetError {
        match error {
            TopicError::Reserved(_) => TargetError::NoReceiver,
            TopicError::Unknown(_) if is_inbox(subject) => TargetError::NoReceiver,
            error => TargetError::Refused(error),
        }
    }
}

impl TargetSearch {
    /// Polls the search. `unread` has the bytes that the client sent after the record. Once the first topic is found,
    /// the topics of the records in `unread` are created together, because creating each one would wait for the
    /// cluster.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        node: &Node,
        unread: &[u8],
        limits: &NatsDecoderLimits,
    ) -> Poll<Result<OwningTopic, TopicError>> {
        if self.found.is_none() {
            let owner = ready!(Pin::new(&mut self.owner).poll(cx));
            let later = later_subjects(node, &self.subject, unread, limits);
            self.found = Some((owner, node.precreate_topics_async(later)));
        }
        if let Some((_, later)) = &mut self.found {
            // Ignores errors here. They are reported when a record is published to the topic.
            let _ = ready!(Pin::new(later).poll(cx));
        }
        match self.found.take() {
            Some((owner, _)) => Poll::Ready(owner),
            None => Poll::Pending,
        }
    }
}

/// The subjects of later records whose topics must be created, each with the payload size of its first record.
fn later_subjects(
    node: &Node,
    first: &str,
    unread: &[u8],
    limits: &NatsDecoderLimits,
) -> Vec<(String, usize)> {
    let (mut later, mut known) = (Vec::new(), HashSet::from([first]));
    let mut at = 0;
    while later.len() < LATER_SUBJECTS_MAX
        && let Ok(DecodeOutcome::Message(operation, taken)) = nats::next(&unread[at..], limits)
    {
        at += taken;
        let NatsOperation::Publish(published) = operation else { continue };
        let Some(subject) = std::str::from_utf8(published.subject).ok() else { continue };
        if known.insert(subject)
            && let Ok(parsed) = Subject::parse(subject)
            && !node.finds_at_once(parsed, MissingTopicPolicy::Create)
        {
            later.push((subject.to_owned(), published.payload.len()));
        }
    }
    later
}

impl PublishTargets {
    /// Finds the topic of a subject. The node may create it for a record of this payload size.
    #[inline]
    pub(super) fn find<'a>(
        &'a mut self,
        node: &Node,
        subject: &'a [u8],
        payload_bytes: usize,
        targets_max: usize,
    ) -> Result<PublishTarget<'a>, TargetError> {
        let subject = std::str::from_utf8(subject).map_err(|_| TargetError::InvalidSubject)?;
        if is_inbox(subject) {
            // The end of an inbox's subject differs in each reply, so it is checked each time.
            Subject::parse(subject).map_err(|_| TargetError::InvalidSubject)?;
        }
        if let Some((_, publisher)) = self.reply.as_ref().filter(|(reply, _)| **reply == *subject) {
            return Ok(PublishTarget::of(publisher, subject));
        }
        let key = key(subject);
        if !self.by_key.contains_key(key) {
            let found = self.found.take().filter(|(found_for, _)| **found_for == *subject);
            let owner = match found {
                Some((_, found)) => found.map_err(|error| TargetError::of(error, subject))?,
                None => find(node, subject, payload_bytes)?,
            };
            if self.by_key.len() >= targets_max {
                self.by_key.clear();
            }
            self.by_key
                .insert(key.into(), CachedTarget { publisher: owner.register_publisher(), _owner: owner });
        }
        Ok(PublishTarget::of(&self.by_key[key].publisher, subject))
    }

    /// Makes the next record, which is a reply with this subject, go to this inbox.
    pub(super) fn set_reply_target(&mut self, subject: &[u8], inbox: &Arc<Topic>) {
        let subject = std::str::from_utf8(subject).ok();
        self.reply = subject.map(|subject| (subject.into(), inbox.register_publisher()));
    }

    /// Ends the effect of [`set_reply_target`](PublishTargets::set_reply_target); called after the publish.
    #[inline]
    pub(super) fn clear_reply_target(&mut self) {
        if self.reply.is_some() {
            self.reply = None;
        }
    }

    /// Starts a search if finding the topic has to wait. [`PublishTargets::find`] uses the result.
    pub(super) fn start_search(
        &self,
        node: &Node,
        subject: &[u8],
        payload_bytes: usize,
    ) -> Option<TargetSearch> {
        let subject =
            std::str::from_utf8(subject).ok().filter(|subject| !self.by_key.contains_key(key(subject)))?;
        if self.found.as_ref().is_some_and(|(found_for, _)| **found_for == *subject) {
            return None;
        }
        let parsed = Subject::parse(subject).ok()?;
        if node.finds_at_once(parsed, MissingTopicPolicy::Create) {
            return None;
        }
        let owner = node.owning_topic_for_no_reply_async(parsed, payload_bytes).into_pending()?;
        Some(TargetSearch { subject: subject.into(), owner, found: None })
    }

    pub(super) fn store_result(
        &mut self,
        target_search: TargetSearch,
        owner: Result<OwningTopic, TopicError>,
    ) {
        self.found = Some((target_search.subject, owner));
    }

    pub(super) fn contains(&self, subject: &[u8]) -> bool {
        let is_reply = self.reply.as_ref().is_some_and(|(reply, _)| reply.as_bytes() == subject);
        is_reply || std::str::from_utf8(subject).is_ok_and(|subject| self.by_key.contains_key(key(subject)))
    }

    /// Removes the subject's topic from the cache, because it is closed or refuses records.
    pub(super) fn remove(&mut self, subject: &[u8]) {
        if let Ok(subject) = std::str::from_utf8(subject) {
            self.by_key.remove(key(subject));
            self.reply.take_if(|(reply, _)| **reply == *subject);
        }
    }
}

fn key(subject: &str) -> &str {
    if is_inbox(subject) { inboxes::key(subject) } else { subject }
}

fn find(node: &Node, subject: &str, payload_bytes: usize) -> Result<OwningTopic, TargetError> {
    let parsed = Subject::parse(subject).map_err(|_| TargetError::InvalidSubject)?;
    node.owning_topic_for_no_reply(parsed, payload_bytes).map_err(|error| TargetError::of(error, subject))
}
