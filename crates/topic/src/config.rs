//! How a topic behaves.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::fold::FoldConfig;
use crate::limits::Limits;
use crate::publish::Acknowledged;
use crate::subject::SubjectError;

/// The smallest history, bytes: two segments must fit.
pub const RETENTION_BYTES_MIN: u64 = 16 << 10;

/// What a topic is created with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// The subjects it owns; by default its name alone.
    pub pattern: Option<String>,
    /// How many logs its keys are spread over.
    pub partitions: u16,
    /// How much history it keeps.
    pub retention: Retention,
    /// The largest record, with its meta and padding.
    pub record_bytes_max: u32,
    /// From this size on a shared payload is kept by reference instead of copied.
    pub by_ref_bytes_min: u32,
    /// Publishers wait for registered readers.
    pub reliable: Option<Reliable>,
    /// Its records are stored on disk; `retention` is the disk's then.
    pub durable: Option<Durable>,
    /// A state follows from its records: readers may begin with it and are brought back by it.
    pub fold: Option<FoldConfig>,
    /// For trying readers: what [`SubscribeOptions::lose_every`](crate::SubscribeOptions::lose_every) is for those that do not
    /// say.
    pub lose_every: Option<NonZeroU32>,
    /// What each of its logs holds at most beside its history; a node says the same for all of its topics.
    pub limits: Limits,
}

impl Default for TopicConfig {
    fn default() -> TopicConfig {
        TopicConfig {
            pattern: None,
            partitions: 1,
            retention: Retention::default(),
            record_bytes_max: 8 << 20,
            by_ref_bytes_min: 4 << 10,
            reliable: None,
            durable: None,
            fold: None,
            lose_every: None,
            limits: Limits::default(),
        }
    }
}

/// How much history a log keeps: whichever limit is reached first. Memory is given up a segment at
/// a time (an eighth of `bytes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Bytes of segments, and of payloads by reference.
    pub bytes: u64,
    /// Records. A registered reader of a `reliable` topic is given more, where they are still there.
    pub records: Option<u64>,
    /// Time since the record was appended.
    pub age: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { bytes: 4 << 20, records: None, age: None }
    }
}

/// Topics whose publishers wait for their readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reliable {
    /// Readers that may register.
    pub readers_max: u16,
    /// How long a publisher waits when the history is full and the slowest reader has not consumed its oldest record.
    pub wait_max: Duration,
    /// What happens then.
    pub on_full: OnFull,
}

impl Default for Reliable {
    fn default() -> Reliable {
        Reliable { readers_max: 64, wait_max: Duration::from_secs(5), on_full: OnFull::Refuse }
    }
}

/// Topics whose records outlive the process. Readers are given a record when it is stored, not before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durable {
    /// What an acknowledgement stands for: memory, written or synced.
    pub acknowledge: Acknowledged,
    /// Stored history that is kept in memory as well, bytes; readers further behind are given it from disk.
    pub memory_bytes: u64,
}

impl Durable {
    /// What a durable topic keeps on disk unless it is told, bytes.
    pub const RETENTION_BYTES_DEFAULT: u64 = 1 << 30;
}

impl Default for Durable {
    fn default() -> Durable {
        Durable { acknowledge: Acknowledged::Synced, memory_bytes: 4 << 20 }
    }
}

/// What a reliable topic does when a reader does not make room in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFull {
    /// The publish is refused.
    #[default]
    Refuse,
    /// The slowest reader loses its place and is told its gap.
    Evict,
}

/// Why a topic cannot be made so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A name or pattern that breaks the rules.
    #[error("{0}")]
    Subject(#[from] SubjectError),
    /// A value outside its range.
    #[error("{name} of {value} is outside {min} … {max}")]
    Range {
        /// The value's name.
        name: &'static str,
        /// The value.
        value: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// Two settings that exclude each other, or one that needs what is not there.
    #[error("{0}")]
    Unfit(&'static str),
    /// A fold that is not known, or not so.
    #[error("fold {kind:?}: {why}")]
    Fold {
        /// Its kind.
        kind: String,
        /// What is wrong.
        why: String,
    },
}

impl TopicConfig {
    /// History that each log keeps in memory, bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let tail = self.durable.map_or(u64::MAX, |durable| durable.memory_bytes);
        self.retention.bytes.min(tail)
    }

    /// Checks every value's range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let range = |name, value, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError::Range { name, value, min, max })
            }
        };
        range("partitions", self.partitions.into(), 1, 1024)?;
        range("retention_bytes", self.retention.bytes, RETENTION_BYTES_MIN, 1 << 40)?;
        range("retention_records", self.retention.records.unwrap_or(1), 1, u64::MAX)?;
        range("record_bytes_max", self.record_bytes_max.into(), 64, 64 << 20)?;
        if let Some(reliable) = &self.reliable {
            range("readers_max", reliable.readers_max.into(), 1, 10_000)?;
        }
        if let Some(durable) = &self.durable {
            range("memory_bytes", durable.memory_bytes, RETENTION_BYTES_MIN, 1 << 40)?;
            if durable.acknowledge > Acknowledged::Synced {
                return Err(ConfigError::Unfit("a durable topic acknowledges memory, written or synced"));
            }
            if self.lose_every.is_some() {
                return Err(ConfigError::Unfit("a topic that loses records for trying is not durable"));
            }
            if self.reliable.is_some() {
                return Err(ConfigError::Unfit("a topic is durable or reliable, not both"));
            }
        }
        Ok(())
    }
}

/// Durations longer than 584 years are that long.
pub(crate) fn saturating_ns(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// The current time, ns since the Unix epoch. Given by whoever owns the topics: this crate has no
/// clock of its own.
#[derive(Debug, Clone, Copy)]
pub struct Clock(pub fn() -> u64);

impl Clock {
    /// Now, ns since the Unix epoch.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        (self.0)()
    }
}
