//! Dead letters: records whose attempts have all failed.
//!
//! A dead letter is a copy of the record with its key, reply, event time and headers, and with headers about its
//! origin. Appending a dead letter does not wait. While the topic has no room, the group keeps the dead letter and
//! tries again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin_topic::{
    BatchAppend, CheckedBatch, DeadCause, DeadLetter, Log, Meta, PublishError, ReadDeferred, Record, Subject,
    Topic, TopicConfig,
};

use crate::clock::now_ns;
use crate::error::TopicError;
use crate::node::Node;
use crate::select::MissingTopicPolicy;

/// Whether a dead letter was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendOutcome {
    Done,
    /// The topic has no room at present, or the record cannot be read at present; the group tries again.
    NotYet,
    /// The record has left the log or can never be appended, so that there is no dead letter.
    Never,
}

/// Whether a thread that may wait creates the topic for a group's dead letters at present. Each operation of the group
/// tries to send the letters, but one thread is enough.
#[derive(Debug, Default)]
pub(super) struct Creation(Arc<AtomicBool>);

/// Marks a creation that is under way until this value is dropped.
struct Underway(Arc<AtomicBool>);

impl Creation {
    /// Returns `None` if a creation is under way already.
    fn begin(&self) -> Option<Underway> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| Underway(Arc::clone(&self.0)))
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The default subject of dead letters of a topic's groups.
pub(super) fn default_subject(topic: &str) -> String {
    format!("dead.{topic}")
}

pub(super) fn send(
    node: &Node,
    subject: &str,
    (group, creation): (&str, &Creation),
    log: &Arc<Log>,
    letter: DeadLetter,
) -> SendOutcome {
    let outcome =
        log.try_read(letter.seq, |record| append(node, subject, (group, creation), &record, letter));
    match outcome {
        Ok(Some(Ok(()))) => SendOutcome::Done,
        Ok(None | Some(Err(PublishError::Batch(_)))) => SendOutcome::Never,
        Ok(Some(Err(error))) if error.concerns_one_record() => SendOutcome::Never,
        Ok(Some(Err(_))) | Err(ReadDeferred) => SendOutcome::NotYet,
    }
}

fn append(
    node: &Node,
    subject: &str,
    (group, creation): (&str, &Creation),
    record: &Record<'_>,
    letter: DeadLetter,
) -> Result<(), PublishError> {
    let parsed = Subject::parse(subject).map_err(TopicError::from)?;
    if !node.finds_at_once(parsed, MissingTopicPolicy::Create) {
        // The topic was deleted, or the cluster has to create it. This call does not wait for the new topic, and the
        // group tries again later.
        if let Some(underway) = creation.begin() {
            let (retry_node, subject) = (node.clone(), subject.to_owned());
            node.0.waiters.run(move || {
                let _underway = underway;
                let _ = Subject::parse(&subject)
                    .map_err(TopicError::from)
                    .and_then(|subject| owner(&retry_node, subject));
            });
        }
        return Err(PublishError::NoTopic(parsed.as_str().to_owned()));
    }
    let topic = owner(node, parsed)?;
    let origin = record.subject();
    let partition_position = format!("{}/{}", record.log.partition, record.position);
    let attempts = letter.attempts.to_string();
    let mut headers: Vec<(&str, &[u8])> = record.frame.headers().collect();
    headers.extend([
        ("dunlin-dead-subject", origin.as_bytes()),
        ("dunlin-dead-position", partition_position.as_bytes()),
        ("dunlin-dead-group", group.as_bytes()),
        ("dunlin-dead-attempts", attempts.as_bytes()),
        ("dunlin-dead-cause", cause(letter.cause).as_bytes()),
    ]);
    let prefix = topic.logs()[0].name().subject_prefix.as_str();
    let meta = Meta {
        subject_tail: subject.strip_prefix(prefix).unwrap_or(""),
        expires_ns: None,
        ..record.frame.to_meta(&headers)
    };
    let encoded = meta.measure(record.payload().len())?;
    let mut bytes = vec![0; encoded.padded()];
    meta.encode(encoded, 0, record.payload(), &mut bytes);
    let batch = CheckedBatch::check(&bytes, 1, bytes.len())?;
    let partition = topic.partition_of(record.frame.key());
    let append = BatchAppend {
        batch,
        partition,
        mark: None,
        expect_last: None,
        claim: None,
        evict: false,
        relayed: false,
    };
    topic.append_batch(now_ns(), append).map(drop)
}

/// Finds the topic for the dead letter. A dead letter is not treated as a reply.
fn owner(node: &Node, subject: Subject<'_>) -> Result<Arc<Topic>, TopicError> {
    node.may_publish(subject)?;
    node.find_owner(subject)
}

fn cause(cause: DeadCause) -> &'static str {
    match cause {
        DeadCause::Refused => "nack",
        DeadCause::Expired => "deadline",
        DeadCause::MemberDied => "member died",
    }
}

/// Creates the topic for dead letters. Returns an error if it is `source_topic`, whose records become dead letters.
pub(super) fn prepare(node: &Node, subject: &str, source_topic: &str) -> Result<(), super::JoinError> {
    let parsed = Subject::parse(subject).map_err(TopicError::from)?;
    let topic = match owner(node, parsed) {
        Err(TopicError::Unknown(_)) => {
            let config = TopicConfig { pattern: None, ..node.config().topic.clone() };
            node.create_topic(subject, config, true)?
        }
        other => other?,
    };
    if topic.name() == source_topic {
        return Err(super::JoinError::DeadLetters {
            subject: subject.to_owned(),
            topic: source_topic.to_owned(),
        });
    }
    Ok(())
}
