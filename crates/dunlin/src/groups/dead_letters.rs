//! Sends dead letters: copies of records whose attempts have all failed.
//!
//! A dead letter has the record's key, reply, event time and headers, and further headers about the record's origin.
//! Sending a dead letter does not wait. A [`LetterQueue`] keeps the letter until it is stored.

mod dropped;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use dunlin_topic::{
    BatchAppend, CheckedBatch, DeadCause, DeadLetter, DurableOptions, Log, PublishError, ReadDeferred,
    Record, RecordMeta, Subject, Topic, Waiter,
};

use super::deadline::NextDeadline;
use crate::clock::{now_ns, steady_ns};
use crate::error::TopicError;
use crate::node::Node;
use crate::waiting;

pub use dropped::DroppedDeadLetters;
pub(super) use dropped::DroppedLetters;
pub(super) use queue::LetterQueue;
use queue::{LetterNumber, LetterNumbers, SentLetter};

/// The destination of a group's dead letters, with the state that all partitions of the group share for sending them.
#[derive(Debug)]
pub(super) struct LetterTarget {
    subject: String,
    /// The durability of the group's topic. If the node creates the topic for dead letters, that topic gets the same
    /// durability.
    durable: Option<DurableOptions>,
    creation: Creation,
    /// Notified when the outcome of a sent letter is known.
    outcomes: Arc<Waiter>,
    alarm: Arc<OutcomeAlarm>,
    /// The waker that runs the alarm.
    waker: Waker,
}

/// When the outcome of a sent letter becomes known, wakes the thread or task that handles deadlines. The alarm takes
/// none of the group's locks, because it may run while the same thread holds one of them.
#[derive(Debug)]
struct OutcomeAlarm {
    is_due: AtomicBool,
    deadline: Arc<NextDeadline>,
}

impl Wake for OutcomeAlarm {
    fn wake(self: Arc<Self>) {
        self.is_due.store(true, Ordering::SeqCst);
        self.deadline.report(0);
    }
}

impl LetterTarget {
    /// Creates the target for dead letters from the topic `source`; the letters are published to `subject`.
    pub(super) fn new(subject: String, source: &Topic, deadline: &Arc<NextDeadline>) -> LetterTarget {
        let alarm = Arc::new(OutcomeAlarm { is_due: AtomicBool::new(false), deadline: Arc::clone(deadline) });
        let waker = Waker::from(Arc::clone(&alarm));
        let durable = source.config().durable;
        LetterTarget {
            subject,
            durable,
            creation: Creation::default(),
            outcomes: Waiter::new(),
            alarm,
            waker,
        }
    }

    /// Whether the alarm has run since it was last reset. If so, the outcome of a sent letter may be known.
    pub(super) fn is_due(&self) -> bool {
        self.alarm.is_due.load(Ordering::SeqCst)
    }

    /// Resets the alarm. Called before the queues take outcomes. If another outcome becomes known afterwards, it runs
    /// the alarm again.
    pub(super) fn reset_alarm(&self) {
        self.alarm.is_due.store(false, Ordering::SeqCst);
        self.outcomes.take_ready(|_| ());
    }

    /// Makes the next outcome run the alarm.
    pub(super) fn arm(&self) {
        if !self.outcomes.set_waker(&self.waker) {
            self.waker.wake_by_ref();
        }
    }
}

/// Whether a thread is creating the topic for a group's dead letters. Each operation of the group tries to send the
/// letters, but only one creation of the topic runs at a time.
#[derive(Debug, Default)]
struct Creation(Arc<AtomicBool>);

/// A creation that is under way. Dropping the value marks the creation as ended.
struct Underway(Arc<AtomicBool>);

impl Creation {
    /// Marks the creation of the topic as under way. Returns `None` if another thread is already creating the topic.
    fn begin(&self) -> Option<Underway> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| Underway(Arc::clone(&self.0)))
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The group whose dead letters are sent: its node, its topic, its name, and the destination of the letters.
pub(super) struct LetterSender<'a> {
    pub(super) node: &'a Node,
    pub(super) topic: &'a str,
    pub(super) group: &'a str,
    pub(super) target: &'a LetterTarget,
}

/// The log of a partition, which contains the records whose dead letters are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct LetterSource<'a> {
    pub(super) log: &'a Log,
    /// The newest epoch whose records the group may deliver.
    pub(super) newest_epoch: u32,
}

impl LetterSender<'_> {
    /// Reports letters that were dropped because they could not be stored. `count` is their number.
    pub(super) fn report_dropped(&self, count: u64, why: String) {
        let (topic, group) = (self.topic.to_owned(), self.group.to_owned());
        let dropped = DroppedDeadLetters { topic, group, count, why };
        self.node.groups_of_node().dropped_letters.add(dropped);
    }

    /// Sends the dead letter of a record. `number` is the letter's number if the letter was sent before. Returns `None`
    /// if the record has left the log, and [`ReadDeferred`] if the record cannot be read at present.
    fn send(
        &self,
        records: LetterSource<'_>,
        letter: DeadLetter,
        number: Option<LetterNumber>,
        numbers: &LetterNumbers,
    ) -> Result<Option<Result<SentLetter, PublishError>>, ReadDeferred> {
        let LetterSource { log, newest_epoch } = records;
        // If the topic has moved and its sequence numbers have restarted, `letter.seq` may be the number of another
        // record. The epoch tells the two apart.
        let sent = log.try_read(letter.seq, |record| {
            let is_of_group = record.position.epoch <= newest_epoch;
            is_of_group.then(|| self.append(&record, letter, number, numbers))
        });
        sent.map(Option::flatten)
    }

    fn append(
        &self,
        record: &Record<'_>,
        letter: DeadLetter,
        number: Option<LetterNumber>,
        numbers: &LetterNumbers,
    ) -> Result<SentLetter, PublishError> {
        let subject = self.target.subject.as_str();
        let parsed = Subject::parse(subject).map_err(TopicError::from)?;
        // Use a handle without a user. The user whose request has led to this call may lack the permission to publish
        // dead letters.
        let node = self.node.unguarded();
        let durable = self.target.durable;
        let topic = match node.registry().owner(parsed) {
            Some(topic) => topic,
            None if node.creates_letter_topic_at_once(parsed, durable) => owner(&node, parsed, durable)?,
            None => {
                // The cluster or a disk has to create the topic. Do not wait for the creation here, because the group's
                // lock is held. The group sends the letter again later.
                if let Some(underway) = self.target.creation.begin() {
                    let (retry_node, subject) = (node.clone(), subject.to_owned());
                    node.0.waiters.run(move || {
                        let _underway = underway;
                        let _ = Subject::parse(&subject)
                            .map_err(TopicError::from)
                            .and_then(|subject| owner(&retry_node, subject, durable));
                    });
                }
                return Err(PublishError::NoTopic(parsed.as_str().to_owned()));
            }
        };
        let origin = record.subject();
        let partition_position = format!("{}/{}", record.log.partition, record.position);
        let attempts = letter.attempts.to_string();
        let mut headers: Vec<(&str, &[u8])> = record.frame.headers().collect();
        headers.extend([
            ("dunlin-dead-subject", origin.as_bytes()),
            ("dunlin-dead-position", partition_position.as_bytes()),
            ("dunlin-dead-group", self.group.as_bytes()),
            ("dunlin-dead-attempts", attempts.as_bytes()),
            ("dunlin-dead-cause", cause(letter.cause).as_bytes()),
        ]);
        let prefix = topic.logs()[0].name().subject_prefix.as_str();
        let meta = RecordMeta {
            subject_tail: subject.strip_prefix(prefix).unwrap_or(""),
            expires_ns: None,
            ..record.frame.to_meta(&headers)
        };
        let encoded = meta.measure(record.payload().len())?;
        let mut bytes = vec![0; encoded.padded()];
        meta.encode(encoded, 0, record.payload(), &mut bytes);
        let batch = CheckedBatch::check(&bytes, 1, bytes.len())?;
        let partition = topic.partition_of(record.frame.key());
        let number = number
            .filter(|number| number.partition == partition)
            .unwrap_or_else(|| numbers.next_of(partition));
        let append = BatchAppend {
            batch,
            partition,
            mark: Some(number.mark),
            expect_last: None,
            claim: None,
            evict: false,
            relayed: false,
        };
        let receipt = topic.append_batch(now_ns(), append).inspect_err(|error| {
            if matches!(error, PublishError::DiskBehind { .. }) {
                // The disk reserves room only if a caller registers that it waits for room, as a publisher does.
                topic.await_room(partition, &self.target.outcomes);
            }
        })?;
        Ok(SentLetter {
            letter,
            number,
            log: Arc::clone(&topic.logs()[partition]),
            position: receipt.position,
            level: receipt.acknowledged,
            sent_ns: steady_ns(),
        })
    }
}

/// Finds the topic for dead letters. If there is none and `auto_create` is set, creates it with the durability
/// `durable`. Even if `subject` looks like the subject of a reply, no reply inbox is used.
fn owner(
    node: &Node,
    subject: Subject<'_>,
    durable: Option<DurableOptions>,
) -> Result<Arc<Topic>, TopicError> {
    node.may_publish(subject)?;
    node.find_owning_topic_or_durable(subject, durable)
}

fn cause(cause: DeadCause) -> &'static str {
    match cause {
        DeadCause::Refused => "nack",
        DeadCause::Expired => "deadline",
        DeadCause::MemberDied => "member died",
    }
}

/// Finds the topic for dead letters, or creates it if `auto_create` is set. Returns an error if the topic does not
/// exist and is not created, if the user may not publish to it, or if the topic is `source`, the group's own topic.
pub(super) fn prepare(node: &Node, subject: &str, source: &Topic) -> Result<(), super::JoinError> {
    let invalid = |error| super::JoinError::DeadLetterSubject { subject: subject.to_owned(), error };
    let parsed = Subject::parse(subject).map_err(invalid)?;
    let mut found = owner(node, parsed, source.config().durable);
    if matches!(found, Err(TopicError::Unknown(_))) && waiting::is_allowed() {
        // This node may not know yet that another node has created the topic.
        found = node.agreed_topic(parsed);
    }
    let topic = found.map_err(|error| match error {
        TopicError::Unknown(subject) => super::JoinError::Topic(TopicError::NoDeadLetterTopic(subject)),
        TopicError::Forbidden { action, subject } => {
            super::JoinError::DeadLettersForbidden { action, subject }
        }
        other => super::JoinError::Topic(other),
    })?;
    if topic.name() == source.name() {
        return Err(super::JoinError::DeadLetters {
            subject: subject.to_owned(),
            topic: source.name().to_owned(),
        });
    }
    Ok(())
}
