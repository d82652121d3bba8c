//! Topics: logs in memory, their publishers and their subscribers.
//!
//! A [`Topic`] has one or more [`Log`]s. A log is a chain of segments: records are appended at one end and dropped at
//! the other. A [`Cursor`] is a subscriber's position in a log; a [`Subscriber`] reads with one cursor or several. The
//! cost of publishing does not depend on the number of subscribers.
//!
//! This crate uses no sockets, disks, threads or clock. The caller supplies the time through [`Clock`].

mod sync;

mod event;
mod limits;
mod pattern_index;
mod producer;
mod publish;
mod reducer;
mod request;
mod spinning;
mod subject;
mod subscribe;

mod config;
mod lock;
mod memory;
mod segment;
mod store;
mod wake;

mod checked_batch;
mod claim;
mod cursor;
mod group;
mod log;
mod progress;
mod publisher;
mod subscriber;
mod subscribers;
mod topic;
mod upstream;

pub use checked_batch::CheckedBatch;
pub use claim::StateClaim;
pub use config::{
    Clock, ConfigError, DurableOptions, OnFull, RETENTION_BYTES_MIN, ReliableOptions, Retention, TopicConfig,
};
pub use cursor::{
    ConsumeMode, Cursor, Filter, PayloadFilter, ReadOutcome, RecordSpan, RecordSpanContent, RecordSpans,
    SkipBudget,
};
pub use dunlin_frame as frame;
pub use dunlin_frame::{Frame, FrameError, RecordMeta, format_duration};
pub use event::{
    Checksum, EpochChanged, Event, Gap, Lagging, LogName, Notice, Position, PositionError, PublisherStatus,
    Record, Snapshot,
};
pub use group::{
    Claim, ClaimError, DeadCause, DeadLetter, DeadLetterTarget, GroupError, LostRecords, MemberDeparture,
    MemberId, RecordSource, ShareGroup, SourceItem, WorkConfig, WorkGroup,
};
pub use limits::LogLimits;
#[cfg(not(loom))]
pub use lock::{ShortGuard, ShortLock};
pub use log::{
    AckProgress, BATCH_BYTES_MAX, Log, LogInfo, LossCause, LossCounters, LossReport, LossReports, LossTotals,
    MirrorFeedError, ProducerMark, StagedBatch, StagedProducer, StagedRecords, StateInfo, StorageInfo,
    TopicLiveness,
};
pub use memory::{MemoryBudget, MemoryBudgetError, MemoryCharge, ReclaimableMemory};
pub use pattern_index::PatternIndex;
pub use progress::{SubscriberInfo, SubscriberProgress};
pub use publish::{AckLevel, Draft, Payload, Publish, PublishError, Receipt};
pub use publisher::Publisher;
pub use reducer::{FrozenState, Reducer, ReducerConfig, ReducerError};
pub use request::{INBOX_PREFIX, Reply, RequestError, check_reply_subject};
pub use spinning::{SPIN_US_DEFAULT, SpinBudget};
pub use store::{DiskContent, EpochStart, LoadedSegment, ReadDeferred, RecoveredLog, Store};
pub use subject::{
    Pattern, SERVICES, SUBJECT_BYTES_MAX, Selection, Subject, SubjectError, TailPattern, needs_escape,
};
pub use subscribe::{OnGap, Resync, Start, Subscribe, SubscribeError, SubscribeOptions, WaitStrategy};
pub use subscriber::{NewLogArrivals, NewLogs, Subscriber};
pub use topic::{BatchAppend, PublisherRegistration, Topic, key_hash};
pub use upstream::{ForwardedBatch, Upstream};
pub use wake::{Waiter, thread_waker};
