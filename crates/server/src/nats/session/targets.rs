//! Caches the topic of each subject to which the connection publishes.
//!
//! If a topic was created for a record and no record of the topic is accepted, the topic is removed again.
//!
//! Limit: the cache has at most `targets_max` entries. When the cache is full, all entries are removed, and each topic
//! is looked up again when it is needed.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dunlin::topic::{PublisherRegistration, Subject, Topic};
use dunlin::wire::DecodeOutcome;
use dunlin::wire::nats::{self, NatsDecoderLimits, NatsOperation};
use dunlin::{MissingTopicPolicy, Node, OwningTopic, TopicError, TopicFuture};

use super::inboxes::{self, is_inbox};

/// The topics to which the connection publishes, by subject. All subjects of an inbox share one entry.
#[derive(Debug, Default)]
pub(super) struct PublishTargets {
    by_key: HashMap<Box<str>, CachedTarget>,
    /// The result of the last search, with the subject for which it was made.
    found: Option<(Box<str>, Result<OwningTopic, TopicError>)>,
    /// If a reply is being published: the reply's subject, and the inbox that receives it. This is not cached, because
    /// a reply subject is used only once.
    reply: Option<(Box<str>, PublisherRegistration)>,
}

/// A search for the topic of a record. The record waits until the search ends. The search also creates the topics of
/// records that the client sent after this one.
pub(super) struct TargetSearch {
    subject: Box<str>,
    owner: TopicFuture<OwningTopic>,
    found: Option<(Result<OwningTopic, TopicError>, TopicFuture<()>)>,
}

/// Maximum number of subjects of later records whose topics are created in advance.
const LATER_SUBJECTS_MAX: usize = 256;

/// A cached topic. Fields are dropped in this order: first the publisher, then the owner, which may delete the topic.
#[derive(Debug)]
struct CachedTarget {
    publisher: PublisherRegistration,
    _owner: OwningTopic,
}

/// The topic to which records of a subject are appended.
#[derive(Debug, Clone, Copy)]
pub(super) struct PublishTarget<'a> {
    pub(super) topic: &'a Arc<Topic>,
    /// The part of the subject that records store: the subject without the topic's prefix.
    pub(super) tail: &'a str,
}

/// The reason why no topic was found for a record.
#[derive(Debug)]
pub(super) enum TargetError {
    /// The subject is not valid.
    InvalidSubject,
    /// No receiver can get the record: the inbox of the subject is closed, or the node does not support the purpose for
    /// which the subject is reserved.
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
    /// Polls the search. `unread` contains the bytes that the client sent after the record. When the record's topic is
    /// found, creates the topics for the records in `unread` together, because creating them one by one would wait for
    /// the cluster each time.
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
            // Errors are ignored here. When a record is published to the topic, the error occurs again and is reported.
            let _ = ready!(Pin::new(later).poll(cx));
        }
        match self.found.take() {
            Some((owner, _)) => Poll::Ready(owner),
            None => Poll::Pending,
        }
    }
}

/// The subjects of the records in `unread` whose topics may have to be created, each with the payload size of its first
/// record.
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
            // The cache key does not contain the last part of an inbox's subject, so the whole subject is checked each
            // time.
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

    /// Makes the inbox the target for the next record, which is a reply with this subject.
    pub(super) fn set_reply_target(&mut self, subject: &[u8], inbox: &Arc<Topic>) {
        let subject = std::str::from_utf8(subject).ok();
        self.reply = subject.map(|subject| (subject.into(), inbox.register_publisher()));
    }

    /// Ends the effect of [`set_reply_target`](PublishTargets::set_reply_target), after the reply was published.
    #[inline]
    pub(super) fn clear_reply_target(&mut self) {
        if self.reply.is_some() {
            self.reply = None;
        }
    }

    /// Starts a search for the topic if finding it must wait. [`PublishTargets::find`] uses the search's result. `None`
    /// if the topic can be found at once.
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

    /// Removes the subject's topic from the cache, because the topic is closed or has refused records.
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
