//! What a subscriber is told: records, and in their place what it missed.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_frame::Frame;

/// A place in a log: sequences count from 1 within each epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// Grows whenever the log cannot vouch for what went before.
    pub epoch: u32,
    /// The record's number within the epoch; 0 is before the first.
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

/// Text that is no position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a position is written EPOCH-SEQ, like 7-1042")]
pub struct PositionError;

/// The log a record or a notice belongs to: a topic and one of its partitions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct LogName {
    /// The topic's name.
    pub topic: String,
    /// The literal tokens at the start of the topic's subject pattern, with their last dot; the
    /// whole subject where the pattern has no wildcard.
    pub subject_prefix: String,
    /// Which of the topic's partitions.
    pub partition: u16,
}

/// One record, borrowed from the segment or the receive buffer it lies in.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Where it stands.
    pub position: Position,
    /// Nothing between this sequence and the record's own is missing: where it is not the one before, what lies
    /// between was filtered, had expired, or is merged into this record. A reader whose last record was an earlier
    /// one has lost something.
    pub prev_seq: u64,
    /// Its bytes.
    pub frame: Frame<'a>,
    /// Its log.
    pub log: &'a Arc<LogName>,
}

impl<'a> Record<'a> {
    /// The content.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.frame.payload()
    }

    /// The sequence within the epoch.
    #[inline(always)]
    pub fn seq(&self) -> u64 {
        self.position.seq
    }

    /// The whole subject it was published to.
    pub fn subject(&self) -> String {
        let tail = self.frame.subject_tail();
        let mut subject = String::with_capacity(self.log.subject_prefix.len() + tail.len());
        subject.push_str(&self.log.subject_prefix);
        subject.push_str(tail);
        subject
    }
}

/// Records that were dropped from the history before this reader came to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Their log.
    pub log: Arc<LogName>,
    /// The epoch they belonged to.
    pub epoch: u32,
    /// The first that is missing.
    pub first: u64,
    /// The last that is missing.
    pub last: u64,
}

impl Gap {
    /// How many records are missing.
    pub fn records(&self) -> u64 {
        self.last - self.first + 1
    }
}

/// A warning, before anything is lost: more than half of the history lies ahead of this reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lagging {
    /// The log.
    pub log: Arc<LogName>,
    /// Records it has yet to read.
    pub behind: u64,
    /// Records the log holds at present.
    pub retained: u64,
}

/// The log began anew, and its owner cannot vouch that the reader saw the end of the old epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochChanged {
    /// The log.
    pub log: Arc<LogName>,
    /// The epoch that ended.
    pub old: u32,
    /// The last record of it that this reader was given.
    pub last_seen: u64,
    /// The last record of it that is known to have existed; `None` when nobody can know.
    pub known_through: Option<u64>,
    /// Where the new epoch's records begin for this reader.
    pub new_first: Position,
}

/// The state of a stateful topic after the record at `position`; the records after that one follow it.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The log.
    pub log: Arc<LogName>,
    /// The last record that the state holds.
    pub position: Position,
    /// The state's checksum.
    pub checksum: u64,
    /// What a fold of the topic's kind makes the state of again. Shared by those that ask together.
    pub bytes: Bytes,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Snapshot { log, position, checksum, bytes } = self;
        let (topic, partition, bytes) = (&log.topic, log.partition, bytes.len());
        write!(f, "Snapshot({topic}/{partition} at {position}, {bytes} bytes, {checksum:016x})")
    }
}

/// What the state of a stateful topic adds up to after the record at `position`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    /// The log.
    pub log: Arc<LogName>,
    /// The last record that the state holds; this reader was given all before it, or told.
    pub position: Position,
    /// The state's checksum.
    pub checksum: u64,
}

/// Whether a publisher of a stateful topic is connected to the topic's owner, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publishers {
    /// The log.
    pub log: Arc<LogName>,
    /// Whether at least one is.
    pub connected: bool,
    /// Since when that has been so, ns since the Unix epoch. Before its first publisher comes, a log has had none since its
    /// owner opened it.
    pub since_ns: u64,
    /// When the newest record was appended, ns since the Unix epoch; `None` where there is none.
    pub last_append_ns: Option<u64>,
}

/// Everything a subscriber can be told besides a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Records were lost to this reader.
    Gap(Gap),
    /// Records may soon be lost to this reader.
    Lagging(Lagging),
    /// A new epoch began.
    EpochChanged(EpochChanged),
    /// Nothing of the reader's interest up to and with this position: it was filtered or expired.
    Advance {
        /// The log.
        log: Arc<LogName>,
        /// Read through here.
        through: Position,
    },
    /// A state, in the place of the records up to its position.
    Snapshot(Snapshot),
    /// For readers of a stateful topic that have read everything, now and then: what they should have by now.
    Checksum(Checksum),
    /// For readers of a stateful topic that have read everything: the first publisher came, or the last one went. At the
    /// beginning only where none is connected, or where the reader goes on after a position.
    Publishers(Publishers),
    /// The log was deleted; there is no more to come from it.
    Deleted {
        /// The log.
        log: Arc<LogName>,
        /// Its last position.
        last: Position,
    },
}

/// What a subscriber is given, one after another.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// The next record.
    Record(Record<'a>),
    /// What stands in a record's place.
    Notice(Notice),
}
