//! The trait with which publishers publish, its arguments, receipts and errors.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dunlin_frame::{FrameError, RecordMeta, format_duration};

use crate::event::Position;

/// The payload of a record to publish: bytes that the log copies, or bytes that the log may share.
#[derive(Debug, Clone)]
pub enum Payload<'a> {
    /// The log copies the bytes.
    Copied(&'a [u8]),
    /// The log keeps a reference to the bytes. If they are few, it copies them instead.
    Shared(Bytes),
}

impl Payload<'_> {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Payload::Copied(bytes) => bytes,
            Payload::Shared(bytes) => bytes,
        }
    }
}

/// A record to publish: its payload, key, headers and other fields.
#[derive(Debug, Clone)]
pub struct Draft<'a> {
    /// All fields of the record except its payload. The publisher itself sets `subject_tail`.
    pub meta: RecordMeta<'a>,
    /// The payload.
    pub payload: Payload<'a>,
}

impl<'a> From<&'a [u8]> for Draft<'a> {
    #[inline(always)]
    fn from(payload: &'a [u8]) -> Draft<'a> {
        Draft { meta: RecordMeta::default(), payload: Payload::Copied(payload) }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Draft<'a> {
    #[inline(always)]
    fn from(payload: &'a [u8; N]) -> Draft<'a> {
        Draft::from(payload.as_slice())
    }
}

impl<'a> From<&'a str> for Draft<'a> {
    fn from(payload: &'a str) -> Draft<'a> {
        Draft::from(payload.as_bytes())
    }
}

impl From<Bytes> for Draft<'_> {
    #[inline(always)]
    fn from(payload: Bytes) -> Self {
        Draft { meta: RecordMeta::default(), payload: Payload::Shared(payload) }
    }
}

/// The acknowledgement level: how safe a record is when its publisher receives the receipt. The record is in memory,
/// written, synced to disk, or on a majority of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AckLevel {
    /// The owner holds the record in memory.
    Memory,
    /// The owner has handed the record to the operating system, which may not have written it to the disk yet.
    Written,
    /// The owner's disk has confirmed that the record is stored.
    Synced,
    /// A majority of replicas have the record.
    Quorum,
    /// Not known yet: this node has forwarded the record to the owner. [`Log::poll_ack`](crate::Log::poll_ack) returns
    /// the owner's response, for which the `seq` in the receipt is the ticket. Publishers never receive such a receipt.
    ByOwner,
}

impl AckLevel {
    const NAMES: [(&'static str, AckLevel); 4] = [
        ("memory", AckLevel::Memory),
        ("written", AckLevel::Written),
        ("synced", AckLevel::Synced),
        ("quorum", AckLevel::Quorum),
    ];
}

impl std::fmt::Display for AckLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = AckLevel::NAMES.iter().find(|(_, level)| level == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

impl std::str::FromStr for AckLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<AckLevel, String> {
        let named = AckLevel::NAMES.iter().find(|(name, _)| *name == text);
        named
            .map(|(_, level)| *level)
            .ok_or_else(|| format!("{text:?} is not an acknowledgement level: use memory, written or synced"))
    }
}

/// The acknowledgement of a published record or batch. It states the position at which the record or batch was
/// appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The partition to which the record or batch was appended.
    pub partition: u16,
    /// Position of the record, or of the batch's last record.
    pub position: Position,
    /// Whether the append was a retry of records that were appended before. If so, `position` is the position of the
    /// first attempt.
    pub duplicate: bool,
    /// The acknowledgement level that was reached.
    pub acknowledged: AckLevel,
    /// Whether the partition's epoch has changed since this publisher's previous receipt, so that acknowledged records
    /// may be lost. Set only in the first receipt of an epoch, and only over a connection.
    pub new_epoch: bool,
}

/// A publisher of one subject, in the same process or over a connection.
///
/// A publisher belongs to one thread, so each thread needs its own publisher. In each partition, the records of a
/// publisher keep their order, and all subscribers receive the records of all publishers in the same order.
pub trait Publish {
    /// Publishes a record and waits for the owner's response.
    fn publish<'a>(&mut self, draft: impl Into<Draft<'a>>) -> Result<Receipt, PublishError>;

    /// Publishes all drafts in order, as one append (all or none of them), and waits for the response. The receipt is
    /// for the last record.
    ///
    /// All drafts of a batch must go to one partition. If their keys belong to several partitions, publish the records
    /// one by one.
    fn publish_batch(&mut self, drafts: &[Draft<'_>]) -> Result<Receipt, PublishError>;

    /// Publishes a record only if the log's last record has the sequence number `last_seq`. Otherwise, fails with
    /// [`PublishError::SeqMoved`].
    fn publish_expecting<'a>(
        &mut self,
        last_seq: u64,
        draft: impl Into<Draft<'a>>,
    ) -> Result<Receipt, PublishError>;

    /// Publishes a record without waiting for the response. If it fails, a later call returns the error, at the latest
    /// [`flush`](Publish::flush).
    fn send<'a>(&mut self, draft: impl Into<Draft<'a>>) -> Result<(), PublishError>;

    /// Waits for the responses to all records that were sent. Returns the last receipt, or `None` if nothing was sent
    /// since the last flush. After an error, another call waits for the remaining records.
    fn flush(&mut self) -> Result<Option<Receipt>, PublishError>;

    /// Async form of [`flush`](Publish::flush).
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Receipt>, PublishError>>;
}

/// The reason why a record was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The record does not fit the layout of frames, or exceeds a limit of it.
    #[error("record refused: {0}")]
    Frame(#[from] FrameError),
    /// The record is larger than the topic's configuration allows.
    #[error("record of {bytes} bytes exceeds the topic's record_bytes_max of {bytes_max} bytes")]
    RecordTooLarge {
        /// The record's size, including its meta fields and padding, bytes.
        bytes: usize,
        /// The maximum size that the topic's configuration allows, bytes.
        bytes_max: usize,
    },
    /// The batch has records for several partitions, or exceeds a limit.
    #[error("batch refused: {0}")]
    Batch(&'static str),
    /// The sequence number of the log's last record is not the expected one.
    #[error("the log's last sequence number is {last_seq}, not {expected}")]
    SeqMoved {
        /// The sequence number that the publisher expected.
        expected: u64,
        /// The sequence number of the log's last record.
        last_seq: u64,
    },
    /// The producer repeats a number, but the log has forgotten at which position the record with this number was
    /// appended.
    #[error(
        "producer sequence {producer_seq} is too old for a retry: the log remembers {remembered_from} and later"
    )]
    DuplicateForgotten {
        /// The number of the refused record.
        producer_seq: u64,
        /// The oldest number that the log remembers.
        remembered_from: u64,
    },
    /// The producer skipped numbers: records that the producer sent before this record never arrived.
    #[error("producer sequence {producer_seq} does not follow {last}: records in between never arrived")]
    ProducerGap {
        /// The number of the refused record.
        producer_seq: u64,
        /// The number of the last record that was appended.
        last: u64,
    },
    /// A newer instance of this producer has taken over, so records of this older instance are refused.
    #[error("producer epoch {epoch} is fenced: a newer instance uses epoch {current}")]
    ProducerFenced {
        /// The producer epoch of the refused record.
        epoch: u32,
        /// The producer epoch of the newer instance.
        current: u32,
    },
    /// The history of a reliable topic is full, and its slowest registered subscriber did not make room in time.
    #[error(
        "history is full: subscriber {subscriber:?} has not consumed record {needed}{}; retry later",
        after_text(*waited)
    )]
    Full {
        /// Name of the slowest subscriber.
        subscriber: String,
        /// Sequence number of the oldest record that this subscriber has not consumed.
        needed: u64,
        /// How long the publisher waited.
        waited: Duration,
    },
    /// The memory budget is exhausted.
    #[error("memory budget exhausted: {used} of {limit} bytes in use, {requested} more requested")]
    BudgetSpent {
        /// Bytes that were requested.
        requested: u64,
        /// Bytes that were already in use.
        used: u64,
        /// The budget's limit, bytes.
        limit: u64,
    },
    /// The disk stores records more slowly than they are published, and did not catch up while the publisher waited.
    #[error(
        "the disk is slow: {unstored_bytes} bytes of the topic are not stored{}; retry later",
        after_text(*waited)
    )]
    DiskBehind {
        /// Number of bytes that are appended but not stored yet.
        unstored_bytes: u64,
        /// How long the publisher waited.
        waited: Duration,
    },
    /// The disk of a durable topic is full. Publishing resumes when there is room again.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// The disk of a durable topic has failed. The topic accepts no more records, and records that were sent but not
    /// acknowledged may be lost. Stored records stay readable.
    #[error("the topic's disk failed and the topic accepts no more records: {0}")]
    DiskFailed(String),
    /// The topic's reducer refuses a record. No record of the append was appended.
    #[error("the topic's state refuses {}: {why}", record_text(*record))]
    Reducer {
        /// Number of the refused record in the batch, from 1; 0 if the append had a single record.
        record: u32,
        /// The reason why the record is refused.
        why: crate::reducer::ReducerError,
    },
    /// The topic's state lacks this publisher's last acknowledged record. Nothing was appended.
    #[error(
        "topic {0} has lost its state and some acknowledged records; publish the whole state, then continue"
    )]
    StateLost(String),
    /// Another process owns the log. Publishers never receive this error: the record is forwarded to the owner instead.
    #[error("another node owns the topic")]
    Elsewhere,
    /// The owner responds more slowly than this node forwards records, and did not catch up while the publisher waited.
    #[error(
        "the topic's owner is slow: no response for {unanswered_bytes} bytes{}; retry later",
        after_text(*waited)
    )]
    OwnerBehind {
        /// Number of bytes that were forwarded to the owner and have no response yet.
        unanswered_bytes: u64,
        /// How long the publisher waited.
        waited: Duration,
    },
    /// The owner cannot be reached. A volatile topic soon gets another owner, but a durable topic waits for its owner
    /// to return.
    #[error("{0}")]
    OwnerAway(String),
    /// No topic owns the subject.
    #[error("{}", no_topic_text(.0))]
    NoTopic(String),
    /// The topic was deleted, or its node is shutting down.
    #[error("the topic was deleted, or its node is shutting down")]
    Closed,
    /// The response was lost, so it is unknown whether the record was appended. A retry by the same producer is safe.
    #[error("the record may have been appended: {0}; a retry by the same producer never appends it twice")]
    Unknown(String),
    /// An earlier record of this publisher was refused. All other records that the publisher sent were appended,
    /// including the record of this call.
    #[error(
        "record {record} of this publisher was refused: {why}{}; all other records were sent",
        more_text(*more)
    )]
    LeftOut {
        /// Number of the refused record among the records that this publisher sent to the partition, from 1.
        record: u64,
        /// Number of further records that were refused after that record.
        more: u64,
        /// The reason why the record with the number `record` was refused.
        why: Box<PublishError>,
    },
    /// The user lacks the permission for this operation, perhaps because it was revoked. Or the operation is a reply
    /// that must not go to the requested subject.
    #[error("{0}")]
    Forbidden(String),
    /// The node refused the request with an error that this version does not know.
    #[error("refused by the node: {0}")]
    Refused(String),
}

/// The end of the text about a publisher that has waited; empty if it has not waited.
fn after_text(waited: Duration) -> String {
    match waited < Duration::from_millis(1) {
        true => String::new(),
        false => format!(" after {}", format_duration(waited)),
    }
}

fn more_text(more: u64) -> String {
    if more == 0 { String::new() } else { format!(", and {more} more") }
}

fn no_topic_text(subject: &str) -> String {
    if subject.split('.').any(|token| token == "*" || token == ">") {
        return format!(
            "no topic has the pattern {subject:?}: publish to a subject, which has no wildcards, or create the topic"
        );
    }
    format!("no topic owns the subject {subject:?}")
}

fn record_text(record: u32) -> String {
    match record {
        0 => "it".to_owned(),
        record => format!("record {record} of the batch"),
    }
}

impl PublishError {
    /// Whether the error concerns a single record. Other records of the same publisher may then still succeed.
    pub fn concerns_one_record(&self) -> bool {
        matches!(
            self,
            PublishError::Frame(_) | PublishError::RecordTooLarge { .. } | PublishError::Reducer { .. }
        )
    }

    /// Whether a retry may soon succeed, because there is no room at present but may be later.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            PublishError::Full { .. } | PublishError::DiskBehind { .. } | PublishError::OwnerBehind { .. }
        )
    }

    /// Returns the same error, but with `waited` as the time for which the publisher waited.
    #[must_use]
    pub fn with_waited(self, waited: Duration) -> PublishError {
        match self {
            PublishError::Full { subscriber, needed, .. } => {
                PublishError::Full { subscriber, needed, waited }
            }
            PublishError::DiskBehind { unstored_bytes, .. } => {
                PublishError::DiskBehind { unstored_bytes, waited }
            }
            PublishError::OwnerBehind { unanswered_bytes, .. } => {
                PublishError::OwnerBehind { unanswered_bytes, waited }
            }
            other => other,
        }
    }
}
