//! The configuration of topics, and the clock that topics use.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::limits::LogLimits;
use crate::publish::AckLevel;
use crate::reducer::ReducerConfig;
use crate::subject::SubjectError;

/// The smallest retention, bytes. It has room for two segments.
pub const RETENTION_BYTES_MIN: u64 = 16 << 10;

/// The configuration of a topic: its pattern, partitions, retention and storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// The pattern of the subjects that the topic owns. By default, the topic owns only the subject that equals its
    /// name.
    pub pattern: Option<String>,
    /// The number of partitions.
    pub partitions: u16,
    /// How much history each log of the topic keeps.
    pub retention: Retention,
    /// The largest size of a record, including its meta fields and padding, bytes.
    pub record_bytes_max: u32,
    /// A payload of at least this many bytes is not copied if the publisher passes it as shared bytes: the log keeps a
    /// reference to the payload. Smaller payloads are copied.
    pub by_ref_bytes_min: u32,
    /// If set, the topic is reliable: its publishers wait for registered subscribers.
    pub reliable: Option<ReliableOptions>,
    /// If set, the topic is durable: its records are stored on disk, and `retention` applies to the disk.
    pub durable: Option<DurableOptions>,
    /// If set, the topic keeps a state. A subscriber can start with the state, and can continue with the state after it
    /// has lost records.
    pub reducer: Option<ReducerConfig>,
    /// For tests of subscribers: the default for
    /// [`SubscribeOptions::test_loss_every`](crate::SubscribeOptions::test_loss_every).
    pub test_loss_every: Option<NonZeroU32>,
    /// The limits of each log, except for the retention. A node uses the same limits for all topics.
    pub limits: LogLimits,
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
            reducer: None,
            test_loss_every: None,
            limits: LogLimits::default(),
        }
    }
}

/// The limits of a log's history, by bytes, records and age. As soon as one of the limits is exceeded, the log drops
/// its oldest records. The log frees memory by whole segments, each with an eighth of `bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Maximum size of the history in bytes: its segments, and the payloads that are kept by reference.
    pub bytes: u64,
    /// Maximum number of records. A registered subscriber of a reliable topic can read even older records while they
    /// are still in memory.
    pub records: Option<u64>,
    /// Maximum age of a record: the time since it was appended.
    pub age: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { bytes: 4 << 20, records: None, age: None }
    }
}

/// The options of a reliable topic, whose publishers wait for subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReliableOptions {
    /// Maximum number of subscribers that may register.
    pub subscribers_max: u16,
    /// How long a publisher waits for the slowest subscriber when the history is full.
    pub wait_max: Duration,
    /// Whether the topic refuses the record, or evicts the slowest subscriber, if there is still no room after
    /// `wait_max`.
    pub on_full: OnFull,
}

impl Default for ReliableOptions {
    fn default() -> ReliableOptions {
        ReliableOptions { subscribers_max: 64, wait_max: Duration::from_secs(5), on_full: OnFull::Refuse }
    }
}

/// The options of a durable topic, whose records are stored on disk. Subscribers receive a record only after it is
/// stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableOptions {
    /// The acknowledgement level: whether a publisher's response means that the record is in memory, written, or synced
    /// to disk.
    pub acknowledge: AckLevel,
    /// How much of the newest history is kept in memory, in addition to the disk, bytes. Subscribers that are further
    /// behind read from disk.
    pub memory_bytes: u64,
}

impl DurableOptions {
    /// The default retention of a durable topic, bytes. It applies to the disk.
    pub const RETENTION_BYTES_DEFAULT: u64 = 1 << 30;
}

impl Default for DurableOptions {
    fn default() -> DurableOptions {
        DurableOptions { acknowledge: AckLevel::Synced, memory_bytes: 4 << 20 }
    }
}

/// The policy of a reliable topic for a subscriber that frees no room in time: refuse records, or evict the subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFull {
    /// The topic refuses the record.
    #[default]
    Refuse,
    /// The topic unregisters the slowest subscriber, which then receives a gap.
    Evict,
}

/// The reason why a topic's configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A name or pattern is invalid.
    #[error("{0}")]
    Subject(#[from] SubjectError),
    /// A value is outside its range.
    #[error("{name} is {value}, but must be {min} to {max}")]
    Range {
        /// The value's name.
        name: &'static str,
        /// The value.
        value: u64,
        /// The smallest allowed value.
        min: u64,
        /// The largest allowed value.
        max: u64,
    },
    /// Two settings exclude each other, or a setting requires another one.
    #[error("{0}")]
    Unfit(&'static str),
    /// The reducer is unknown, or its options are invalid.
    #[error("reducer {kind:?}: {why}")]
    Reducer {
        /// The reducer's kind.
        kind: String,
        /// The reason.
        why: String,
    },
}

impl TopicConfig {
    /// The maximum size of the history that each log keeps in memory, bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let tail = self.durable.map_or(u64::MAX, |durable| durable.memory_bytes);
        self.retention.bytes.min(tail)
    }

    /// Checks that every value of the configuration is in its range.
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
            range("subscribers_max", reliable.subscribers_max.into(), 1, 10_000)?;
        }
        if let Some(durable) = &self.durable {
            range("memory_bytes", durable.memory_bytes, RETENTION_BYTES_MIN, 1 << 40)?;
            if durable.acknowledge > AckLevel::Synced {
                return Err(ConfigError::Unfit(
                    "a durable topic's acknowledgement level must be memory, written or synced",
                ));
            }
            if self.test_loss_every.is_some() {
                return Err(ConfigError::Unfit("a topic with test_loss_every cannot be durable"));
            }
            if self.reliable.is_some() {
                return Err(ConfigError::Unfit("a topic cannot be both durable and reliable"));
            }
        }
        Ok(())
    }
}

/// Converts a duration to ns. A duration above 584 years becomes `u64::MAX`.
pub(crate) fn saturating_ns(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// The source of the current time, and of the time with which waits are measured.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    now: fn() -> u64,
    steady: fn() -> u64,
}

impl Clock {
    /// Creates a clock from `now`, a function that returns the time in ns since the Unix epoch. Waits are measured with
    /// the same function.
    pub const fn new(now: fn() -> u64) -> Clock {
        Clock { now, steady: now }
    }

    /// Returns a copy of this clock that measures waits with `steady`, a function that returns a monotonic time in ns.
    /// Waits then keep their length when the system's time is set.
    pub const fn with_steady(self, steady: fn() -> u64) -> Clock {
        Clock { now: self.now, steady }
    }

    /// The current time, ns since the Unix epoch.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        (self.now)()
    }

    /// The time with which waits are measured, ns.
    #[inline(always)]
    pub fn steady_ns(&self) -> u64 {
        (self.steady)()
    }
}
