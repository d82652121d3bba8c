//! The events that a subscriber receives: records and notices.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_frame::Frame;

/// A position in a log: an epoch and a sequence number. Sequence numbers count from 1 within each epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// The epoch's number. The number grows when the log may have lost earlier records.
    pub epoch: u32,
    /// The record's number within the epoch, from 1. 0 is the position before the first record.
    pub seq: u64,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.epoch, self.seq)
    }
}

impl std::str::FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Position, PositionError> {
        let parse = || {
            let (epoch, seq) = text.split_once('-')?;
            Some(Position { epoch: epoch.parse().ok()?, seq: seq.parse().ok()? })
        };
        parse().ok_or(PositionError)
    }
}

/// The error for a text that is not a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a position has the form EPOCH-SEQ, such as 7-1042")]
pub struct PositionError;

/// The name of a log: its topic and its partition.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct LogName {
    /// The topic's name.
    pub topic: String,
    /// The literal tokens at the start of the topic's pattern, including the dot after them; the whole pattern if it
    /// has no wildcard.
    pub subject_prefix: String,
    /// The partition's number.
    pub partition: u16,
}

/// A record that a subscriber reads. Its bytes are borrowed from a segment or from a receive buffer.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The record's position.
    pub position: Position,
    /// The subscriber has lost no record between this sequence number and the record's own: the records in between were
    /// excluded by a filter, have expired, or are merged into this record. If the last record that a subscriber
    /// received is before `prev_seq`, the subscriber has lost records.
    pub prev_seq: u64,
    /// The record's frame.
    pub frame: Frame<'a>,
    /// The log from which the record was read.
    pub log: &'a Arc<LogName>,
}

impl<'a> Record<'a> {
    /// The bytes that the publisher sent as the record's content.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.frame.payload()
    }

    /// The record's sequence number within its epoch.
    #[inline(always)]
    pub fn seq(&self) -> u64 {
        self.position.seq
    }

    /// The full subject of the record.
    pub fn subject(&self) -> String {
        let tail = self.frame.subject_tail();
        let mut subject = String::with_capacity(self.log.subject_prefix.len() + tail.len());
        subject.push_str(&self.log.subject_prefix);
        subject.push_str(tail);
        subject
    }
}

/// A notice of lost records: a range of records that left the log before this subscriber read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The log.
    pub log: Arc<LogName>,
    /// The epoch of the missing records.
    pub epoch: u32,
    /// Sequence number of the first missing record.
    pub first: u64,
    /// Sequence number of the last missing record.
    pub last: u64,
}

impl Gap {
    /// Number of missing records.
    pub fn records(&self) -> u64 {
        self.last - self.first + 1
    }
}

/// A notice that the subscriber may soon lose records, because more than half of the retained records are still unread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lagging {
    /// The log.
    pub log: Arc<LogName>,
    /// Number of records that the subscriber has not read.
    pub behind: u64,
    /// Number of records that the log retains.
    pub retained: u64,
}

/// A notice of a log's new epoch: the subscriber may have missed records at the end of the old epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochChanged {
    /// The log.
    pub log: Arc<LogName>,
    /// The epoch that ended.
    pub old: u32,
    /// Sequence number of the last record that this subscriber received in the old epoch.
    pub last_seen: u64,
    /// Sequence number of the old epoch's last record, if it is known.
    pub known_through: Option<u64>,
    /// Position of the first record of the new epoch that this subscriber can receive.
    pub new_first: Position,
}

/// A notice with the state of a state topic after the record at `position`. The records after this position follow.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The log.
    pub log: Arc<LogName>,
    /// Position of the last record that the state includes.
    pub position: Position,
    /// The state's checksum.
    pub checksum: u64,
    /// The serialized state, which a reducer of the topic's kind restores. Subscribers that receive the same snapshot
    /// share the bytes.
    pub bytes: Bytes,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Snapshot { log, position, checksum, bytes } = self;
        let (topic, partition, bytes) = (&log.topic, log.partition, bytes.len());
        write!(f, "Snapshot({topic}/{partition} at {position}, {bytes} bytes, {checksum:016x})")
    }
}

/// A notice with the checksum that a subscriber's copy of the state must have after the record at `position`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    /// The log.
    pub log: Arc<LogName>,
    /// Position of the last record that the checksum includes. Before this notice, the subscriber has received every
    /// record up to this position, or a gap for it.
    pub position: Position,
    /// The state's checksum.
    pub checksum: u64,
}

/// A notice that states whether publishers of a state topic are connected to the topic's owner, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherStatus {
    /// The log.
    pub log: Arc<LogName>,
    /// Whether at least one publisher is connected.
    pub connected: bool,
    /// Time since which `connected` has its value, ns since the Unix epoch. If no publisher has ever been connected,
    /// this is the time at which the owner opened the log.
    pub since_ns: u64,
    /// Time at which the newest record was appended, ns since the Unix epoch; `None` if the log has had no record.
    pub last_append_ns: Option<u64>,
}

/// A message for a subscriber that is not a record, such as a gap or a new epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// This subscriber has lost records.
    Gap(Gap),
    /// This subscriber may soon lose records.
    Lagging(Lagging),
    /// A new epoch began.
    EpochChanged(EpochChanged),
    /// The subscriber receives none of the remaining records up to this position, because a filter excludes them or
    /// they have expired.
    Advance {
        /// The log.
        log: Arc<LogName>,
        /// The position up to which the subscriber has read the log.
        through: Position,
    },
    /// A state. It replaces all records up to its position.
    Snapshot(Snapshot),
    /// The checksum that a subscriber's copy of the state must have. Sent now and then, when the subscriber has read
    /// everything.
    Checksum(Checksum),
    /// The first publisher of a state topic has connected, or the last one has left. Sent when the subscriber has read
    /// everything. Also sent at the start of a subscription, if no publisher is connected, or if the start is
    /// [`Start::After`](crate::Start::After).
    Publishers(PublisherStatus),
    /// The log was deleted. No further events of this log follow.
    Deleted {
        /// The log.
        log: Arc<LogName>,
        /// The position of the log's last record.
        last: Position,
    },
}

/// An item that a subscriber receives: a record or a notice.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// The next record.
    Record(Record<'a>),
    /// A notice, in its place between two records.
    Notice(Notice),
}
