//! Where what is published goes: a topic for each subject, looked up once.
//!
//! A topic that was made for what is published stays if something of it is taken.
//!
//! Limit: `targets_max` subjects are remembered; then all are forgotten, and looked up again.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dunlin::topic::{PublisherPlace, Subject, Topic};
use dunlin::wire::Next;
use dunlin::wire::nats::{self, Limits, Operation};
use dunlin::{Missing, Node, Owner, TopicError, TopicFuture};

use super::inboxes::{self, is_inbox};

/// The topics that the connection publishes to, by subject; those of one inbox together.
#[derive(Debug, Default)]
pub(super) struct Targets {
    by_key: HashMap<Box<str>, Remembered>,
    /// What was found for a subject by a thread that may wait for it.
    found: Option<(Box<str>, Result<Owner, TopicError>)>,
    /// Where the reply goes that is being published: its subject is used once.
    reply: Option<(Box<str>, PublisherPlace)>,
}

/// A topic that is being found, and then those of the records behind it.
pub(super) struct Finding {
    subject: Box<str>,
    owner: TopicFuture<Owner>,
    found: Option<(Result<Owner, TopicError>, TopicFuture<()>)>,
}

/// So many subjects are looked for behind the one whose topic is being found.
const AHEAD_MAX: usize = 256;

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

impl<'a> Target<'a> {
    fn of(topic: &'a Arc<Topic>, subject: &'a str) -> Target<'a> {
        let prefix = &topic.logs()[0].name().subject_prefix;
        Target { topic, tail: subject.strip_prefix(prefix.as_str()).unwrap_or("") }
    }
}

impl NoTarget {
    fn of(error: TopicError, subject: &str) -> NoTarget {
        match error {
            TopicError::Reserved(_) => NoTarget::Nobody,
            TopicError::Unknown(_) if is_inbox(subject) => NoTarget::Nobody,
            error => NoTarget::Refused(error),
        }
    }
}

impl Finding {
    /// `unread` is what the client sent behind it. The topics of records in there are made together once the first is found: each
    /// alone would wait for the cluster.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        node: &Node,
        unread: &[u8],
        limits: &Limits,
    ) -> Poll<Result<Owner, TopicError>> {
        if self.found.is_none() {
            let owner = ready!(Pin::new(&mut self.owner).poll(cx));
            let ahead = subjects_ahead(node, &self.subject, unread, limits);
            self.found = Some((owner, node.make_ahead_async(ahead)));
        }
        if let Some((_, ahead)) = &mut self.found {
            // What comes of it shows when it is published to.
            let _ = ready!(Pin::new(ahead).poll(cx));
        }
        match self.found.take() {
            Some((owner, _)) => Poll::Ready(owner),
            None => Poll::Pending,
        }
    }
}

/// The subjects of records that follow and would wait for their topics, and the bytes of the first payload of each.
fn subjects_ahead(node: &Node, first: &str, unread: &[u8], limits: &Limits) -> Vec<(String, usize)> {
    let (mut ahead, mut known) = (Vec::new(), HashSet::from([first]));
    let mut at = 0;
    while ahead.len() < AHEAD_MAX
        && let Ok(Next::Message(operation, taken)) = nats::next(&unread[at..], limits)
    {
        at += taken;
        let Operation::Publish(published) = operation else { continue };
        let Some(subject) = std::str::from_utf8(published.subject).ok() else { continue };
        if known.insert(subject)
            && let Ok(parsed) = Subject::parse(subject)
            && !node.finds_at_once(parsed, Missing::Create)
        {
            ahead.push((subject.to_owned(), published.payload.len()));
        }
    }
    ahead
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
        if let Some((_, place)) = self.reply.as_ref().filter(|(reply, _)| **reply == *subject) {
            return Ok(Target::of(place, subject));
        }
        let key = key(subject);
        if !self.by_key.contains_key(key) {
            let found = self.found.take().filter(|(found_for, _)| **found_for == *subject);
            let owner = match found {
                Some((_, found)) => found.map_err(|error| NoTarget::of(error, subject))?,
                None => find(node, subject, payload_bytes)?,
            };
            if self.by_key.len() >= targets_max {
                self.by_key.clear();
            }
            self.by_key.insert(key.into(), Remembered { place: owner.publisher_place(), _owner: owner });
        }
        Ok(Target::of(&self.by_key[key].place, subject))
    }

    /// What is published next is a reply to this subject, and goes to this inbox.
    pub(super) fn reply_to(&mut self, subject: &[u8], inbox: &Arc<Topic>) {
        let subject = std::str::from_utf8(subject).ok();
        self.reply = subject.map(|subject| (subject.into(), inbox.publisher_place()));
    }

    /// The reply is published.
    #[inline]
    pub(super) fn end_reply(&mut self) {
        if self.reply.is_some() {
            self.reply = None;
        }
    }

    /// Where the subject's topic is to be agreed on or stored first: what finds it, for [`Targets::find`] to have it then.
    pub(super) fn begin_finding(&self, node: &Node, subject: &[u8], payload_bytes: usize) -> Option<Finding> {
        let subject =
            std::str::from_utf8(subject).ok().filter(|subject| !self.by_key.contains_key(key(subject)))?;
        if self.found.as_ref().is_some_and(|(found_for, _)| **found_for == *subject) {
            return None;
        }
        let parsed = Subject::parse(subject).ok()?;
        if node.finds_at_once(parsed, Missing::Create) {
            return None;
        }
        let owner = node.owner_for_no_reply_async(parsed, payload_bytes).if_waiting()?;
        Some(Finding { subject: subject.into(), owner, found: None })
    }

    /// What came of it.
    pub(super) fn found(&mut self, finding: Finding, owner: Result<Owner, TopicError>) {
        self.found = Some((finding.subject, owner));
    }

    /// Whether the subject's topic was looked up before.
    pub(super) fn knows(&self, subject: &[u8]) -> bool {
        let is_reply = self.reply.as_ref().is_some_and(|(reply, _)| reply.as_bytes() == subject);
        is_reply || std::str::from_utf8(subject).is_ok_and(|subject| self.by_key.contains_key(key(subject)))
    }

    /// The topic of this subject is closed, or refuses what is published to it.
    pub(super) fn forget(&mut self, subject: &[u8]) {
        if let Ok(subject) = std::str::from_utf8(subject) {
            self.by_key.remove(key(subject));
            self.reply.take_if(|(reply, _)| **reply == *subject);
        }
    }
}

/// What the topic is remembered by.
fn key(subject: &str) -> &str {
    if is_inbox(subject) { inboxes::key(subject) } else { subject }
}

fn find(node: &Node, subject: &str, payload_bytes: usize) -> Result<Owner, NoTarget> {
    let parsed = Subject::parse(subject).map_err(|_| NoTarget::Unsound)?;
    node.owner_for_no_reply(parsed, payload_bytes).map_err(|error| NoTarget::of(error, subject))
}
