//! Publishing: the one trait, what can be said in it, and how it can be refused.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dunlin_frame::{FrameError, Meta};

use crate::event::Position;

/// The content of a record that is being published.
#[derive(Debug, Clone)]
pub enum Payload<'a> {
    /// Copied into the log.
    Copied(&'a [u8]),
    /// Shared with the log, which copies it only when it is small.
    Shared(Bytes),
}

impl Payload<'_> {
    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Payload::Copied(bytes) => bytes,
            Payload::Shared(bytes) => bytes,
        }
    }
}

/// A record that is being published.
#[derive(Debug, Clone)]
pub struct Draft<'a> {
    /// Everything beside the content. Its `subject_tail` is filled in by the publisher.
    pub meta: Meta<'a>,
    /// The content.
    pub payload: Payload<'a>,
}

impl<'a> From<&'a [u8]> for Draft<'a> {
    #[inline(always)]
    fn from(payload: &'a [u8]) -> Draft<'a> {
        Draft { meta: Meta::default(), payload: Payload::Copied(payload) }
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
        Draft { meta: Meta::default(), payload: Payload::Shared(payload) }
    }
}

/// What an acknowledgement stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Acknowledged {
    /// The owner holds the record in memory.
    Memory,
    /// The owner has written it to its disk's cache.
    Written,
    /// The owner's disk has said that it is stored.
    Synced,
    /// A majority of replicas have it.
    Quorum,
    /// Nothing yet: it was handed on to the topic's owner, whose answer is [told later](crate::Log::await_stored). A receipt
    /// with this holds the ticket to ask with where its sequence would be; no publisher is given one.
    ByOwner,
}

impl Acknowledged {
    const NAMES: [(&'static str, Acknowledged); 4] = [
        ("memory", Acknowledged::Memory),
        ("written", Acknowledged::Written),
        ("synced", Acknowledged::Synced),
        ("quorum", Acknowledged::Quorum),
    ];
}

impl std::fmt::Display for Acknowledged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = Acknowledged::NAMES.iter().find(|(_, level)| level == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

impl std::str::FromStr for Acknowledged {
    type Err = String;

    fn from_str(text: &str) -> Result<Acknowledged, String> {
        let named = Acknowledged::NAMES.iter().find(|(name, _)| *name == text);
        named.map(|(_, level)| *level).ok_or_else(|| format!("{text:?} is none of memory, written, synced"))
    }
}

/// Where a record, or a batch of them, was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The partition.
    pub partition: u16,
    /// Position of the (last) record.
    pub position: Position,
    /// This was a retry: the position is the first attempt's.
    pub duplicate: bool,
    /// What the acknowledgement stands for.
    pub acknowledged: Acknowledged,
    /// The partition is in another epoch than at this publisher's receipt before: it began anew in between, and records that
    /// were acknowledged may be lost. Told over a connection, once.
    pub new_epoch: bool,
}

/// Publishes to one subject, in process or remote.
///
/// A publisher belongs to one thread; make one for each. Records of one publisher to one partition
/// keep their order, and all publishers of a partition share one total order.
pub trait Publish {
    /// Publishes and waits until the owner has answered.
    fn publish<'a>(&mut self, draft: impl Into<Draft<'a>>) -> Result<Receipt, PublishError>;

    /// Publishes all, in order, as one append (all of them, or none); waits for the answer. The receipt is the last record's.
    ///
    /// All drafts of a batch must lie in one partition: with keys on a partitioned topic, send them one by one.
    fn publish_batch(&mut self, drafts: &[Draft<'_>]) -> Result<Receipt, PublishError>;

    /// Publishes only if the log's last record has this sequence; refused with
    /// [`PublishError::SeqMoved`] otherwise.
    fn publish_expecting<'a>(
        &mut self,
        last_seq: u64,
        draft: impl Into<Draft<'a>>,
    ) -> Result<Receipt, PublishError>;

    /// Publishes without waiting. What went wrong is told by a later call, at the latest by
    /// [`flush`](Publish::flush).
    fn send<'a>(&mut self, draft: impl Into<Draft<'a>>) -> Result<(), PublishError>;

    /// Waits until all that was sent has been answered; the last receipt, if anything was sent since the last flush.
    fn flush(&mut self) -> Result<Option<Receipt>, PublishError>;

    /// [`flush`](Publish::flush) for async callers.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Receipt>, PublishError>>;
}

/// Why a record was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The record does not fit the layout or a limit.
    #[error("record refused: {0}")]
    Frame(#[from] FrameError),
    /// The record is larger than the topic takes.
    #[error("record of {bytes} bytes is over the topic's record_bytes_max of {bytes_max}")]
    RecordTooLarge {
        /// Its size with meta and padding.
        bytes: usize,
        /// The topic's limit.
        bytes_max: usize,
    },
    /// A batch for several partitions, or over a limit of the batch.
    #[error("batch refused: {0}")]
    Batch(&'static str),
    /// `expect_seq` named another record than the last.
    #[error("the log's last sequence is {last_seq}, not {expected}")]
    SeqMoved {
        /// What the publisher expected.
        expected: u64,
        /// The log's last.
        last_seq: u64,
    },
    /// The producer's number is lower than its last, and its outcome is no longer remembered.
    #[error("producer sequence {producer_seq} is older than the {remembered_from} still remembered")]
    DuplicateForgotten {
        /// What came.
        producer_seq: u64,
        /// The oldest that could have been answered.
        remembered_from: u64,
    },
    /// The producer skipped a number: something sent before this never arrived.
    #[error("producer sequence {producer_seq} leaves a hole after {last}")]
    ProducerGap {
        /// What came.
        producer_seq: u64,
        /// The last that was accepted.
        last: u64,
    },
    /// A newer instance of this producer has taken over.
    #[error("producer epoch {epoch} was replaced by {current}")]
    ProducerFenced {
        /// The publisher's epoch.
        epoch: u32,
        /// The one in force.
        current: u32,
    },
    /// A reliable topic whose slowest reader did not make room in time.
    #[error("history is full: reader {reader:?} has yet to consume seq {needed}, waited {waited:?}")]
    Full {
        /// Name of the slowest reader.
        reader: String,
        /// The oldest record it has not consumed.
        needed: u64,
        /// How long the publisher waited.
        waited: Duration,
    },
    /// The memory budget is spent.
    #[error("memory budget spent: {asked} more bytes on top of {used} of {limit}")]
    BudgetSpent {
        /// Bytes asked for.
        asked: u64,
        /// Bytes in use.
        used: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// The disk stores more slowly than a durable topic is published to, and did not catch up in time.
    #[error("the disk has yet to store {unstored_bytes} bytes of the topic, waited {waited:?}")]
    DiskBehind {
        /// Bytes that were appended and are not stored.
        unstored_bytes: u64,
        /// How long the publisher waited.
        waited: Duration,
    },
    /// A durable topic's disk is full. Publishing goes on by itself when there is room again.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// A durable topic's disk failed: nothing more is taken, and what had no answer may be lost. What was stored
    /// stays readable.
    #[error("the topic's disk failed, it takes no more records: {0}")]
    DiskFailed(String),
    /// The state of a stateful topic does not take it in; nothing of it was appended.
    #[error("the topic's state refuses {}: {why}", refused_record(*record))]
    Fold {
        /// Which record of the batch, from 1; 0 where it was one alone.
        record: u32,
        /// Why.
        why: crate::fold::FoldError,
    },
    /// A stateful topic began anew since this publisher's last record: its state is gone. Nothing was appended.
    #[error(
        "topic {0} began anew: its state and records that were acknowledged are lost; publish the whole state, then go on"
    )]
    StateLost(String),
    /// Another process owns the log. What is published goes there; no publisher is told this.
    #[error("the topic is owned elsewhere")]
    Elsewhere,
    /// The topic's owner answers more slowly than is published here, and did not catch up in time.
    #[error("the topic's owner has yet to answer for {unanswered_bytes} bytes, waited {waited:?}")]
    OwnerBehind {
        /// Bytes that were handed on and have no answer.
        unanswered_bytes: u64,
        /// How long the publisher waited.
        waited: Duration,
    },
    /// The topic's owner cannot be reached. A volatile topic gets another soon; a durable one waits for its owner to return.
    #[error("{0}")]
    OwnerAway(String),
    /// No topic owns the subject.
    #[error("no topic owns the subject {0:?}")]
    NoTopic(String),
    /// The topic was deleted, or its node is shutting down.
    #[error("the topic is closed")]
    Closed,
    /// The answer was lost: the record may or may not have been appended. Retrying with the same
    /// producer is safe.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// A record that was sent before was refused; all others that were sent are appended, the one of this call included.
    #[error("record {record} sent by this publisher was refused: {why}{}; the others are sent", and_more(*more))]
    LeftOut {
        /// Which, of those sent to its partition by this publisher, from 1.
        record: u64,
        /// So many more were refused since.
        more: u64,
        /// Why the first was.
        why: Box<PublishError>,
    },
    /// A permission is missing, or was taken away.
    #[error("{0}")]
    Forbidden(String),
    /// A refusal by a remote node that this version has no variant for.
    #[error("refused by the node: {0}")]
    Refused(String),
}

fn and_more(more: u64) -> String {
    if more == 0 { String::new() } else { format!(", and {more} more") }
}

fn refused_record(record: u32) -> String {
    match record {
        0 => "it".to_owned(),
        record => format!("record {record} of the batch"),
    }
}

impl PublishError {
    /// Whether it is about one record only: others of the same batch, by themselves, may be taken.
    pub fn is_of_one_record(&self) -> bool {
        matches!(
            self,
            PublishError::Frame(_) | PublishError::RecordTooLarge { .. } | PublishError::Fold { .. }
        )
    }

    /// Whether it may be taken a little later: there is no room now.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            PublishError::Full { .. } | PublishError::DiskBehind { .. } | PublishError::OwnerBehind { .. }
        )
    }

    /// The same, of a publisher that has waited for so long in vain.
    #[must_use]
    pub fn after(self, waited: Duration) -> PublishError {
        match self {
            PublishError::Full { reader, needed, .. } => PublishError::Full { reader, needed, waited },
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
