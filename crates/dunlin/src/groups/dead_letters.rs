//! Where records go that were tried in vain as often as they may be.
//!
//! A dead letter is the record again, with its key, reply, event time and headers, and with headers that say where it
//! comes from. It is appended without waiting: a topic that has no room is tried again later, and the group
//! holds on to the letter.

use std::sync::Arc;

use dunlin_topic::{
    CheckedRun, DeadCause, DeadLetter, Log, Meta, PublishError, Record, RunAppend, Subject, Topic,
    TopicConfig,
};

use crate::clock::now_ns;
use crate::error::TopicError;
use crate::node::Node;
use crate::select::Missing;

/// What became of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Done,
    /// Refused for now.
    NotYet,
    /// The record is gone, or can not be appended.
    Never,
}

/// The subject of dead letters of a topic's groups that name none.
pub(super) fn default_subject(topic: &str) -> String {
    format!("dead.{topic}")
}

pub(super) fn send(node: &Node, subject: &str, group: &str, log: &Arc<Log>, letter: DeadLetter) -> Sent {
    let sent = log.read(letter.seq, |record| append(node, subject, group, &record, letter));
    match sent {
        Some(Ok(())) => Sent::Done,
        None
        | Some(Err(PublishError::Frame(_) | PublishError::RecordTooLarge { .. } | PublishError::Batch(_))) => {
            Sent::Never
        }
        Some(Err(_)) => Sent::NotYet,
    }
}

fn append(
    node: &Node,
    subject: &str,
    group: &str,
    record: &Record<'_>,
    letter: DeadLetter,
) -> Result<(), PublishError> {
    let parsed = Subject::parse(subject).map_err(TopicError::from)?;
    if !node.finds_at_once(parsed, Missing::Create) {
        // It was deleted, or is to be made by the cluster. Nobody waits for that here: the letter is tried again.
        let (again, subject) = (node.clone(), subject.to_owned());
        node.0.waiters.run(move || {
            let _ =
                Subject::parse(&subject).map_err(TopicError::from).and_then(|subject| owner(&again, subject));
        });
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
    let run = CheckedRun::check(&bytes, 1, bytes.len())?;
    let partition = topic.partition_of(record.frame.key());
    let append = RunAppend {
        run,
        partition,
        mark: None,
        expect_last: None,
        claim: None,
        evict: false,
        relayed: false,
    };
    topic.append_run(now_ns(), append).map(drop)
}

/// No dead letter is a reply.
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

/// Sees to it that dead letters have somewhere to go, and not back to where they come from.
pub(super) fn prepare(node: &Node, subject: &str, from: &str) -> Result<(), super::JoinError> {
    let parsed = Subject::parse(subject).map_err(TopicError::from)?;
    let topic = match owner(node, parsed) {
        Err(TopicError::Unknown(_)) => {
            let config = TopicConfig { pattern: None, ..node.config().topic.clone() };
            node.create_topic(subject, config, true)?
        }
        other => other?,
    };
    if topic.name() == from {
        return Err(super::JoinError::DeadLetters { subject: subject.to_owned(), topic: from.to_owned() });
    }
    Ok(())
}
