//! Topics: logs in memory, and what subscribers can rely on.
//!
//! A [`Topic`] has one or more [`Log`]s. A log is a chain of segments: records are appended at one end and dropped at
//! the other. A [`Cursor`] is a position in a log; a [`Subscriber`] reads with one cursor or many. The cost of
//! publishing does not depend on the number of subscribers.
//!
//! This crate has no sockets, disks, threads or clock. The caller supplies the time through [`Clock`].

mod sync;

mod event;
mod fold;
mod limits;
mod pattern_index;
mod producer;
mod publish;
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

mod checked_run;
mod claim;
mod cursor;
mod group;
mod listeners;
mod log;
mod publisher;
mod reading;
mod subscriber;
mod topic;
mod upstream;

pub use checked_run::CheckedRun;
pub use claim::StateClaim;
pub use config::{
    Clock, ConfigError, Durable, OnFull, RETENTION_BYTES_MIN, Reliable, Retention, TopicConfig,
};
pub use cursor::{Consumption, Content, Cursor, Fill, Filter, Span, Spans, View};
pub use dunlin_frame as frame;
pub use dunlin_frame::{Frame, FrameError, Meta};
pub use event::{
    Checksum, EpochChanged, Event, Gap, Lagging, LogName, Notice, Position, PositionError, Publishers,
    Record, Snapshot,
};
pub use fold::{Fold, FoldConfig, FoldError, Frozen};
pub use group::{
    Claim, ClaimError, DeadCause, DeadLetter, Departure, GroupError, Incoming, Lost, MemberId, Share, Source,
    Work, WorkConfig,
};
pub use limits::Limits;
#[cfg(not(loom))]
pub use lock::{Guard as ShortGuard, Lock as ShortLock};
pub use log::{
    BATCH_BYTES_MAX, FeedError, FoldInfo, Log, LogInfo, Losses, ProducerMark, Staged, StagedMark, StagedRun,
    StoredInfo, StoredState,
};
pub use memory::{Budget, BudgetSpent, Charge};
pub use pattern_index::PatternIndex;
pub use publish::{Acknowledged, Draft, Payload, Publish, PublishError, Receipt};
pub use publisher::Publisher;
pub use reading::{ReaderInfo, Reading};
pub use request::{Reply, RequestError};
pub use spinning::{SPIN_US_DEFAULT, Spinning};
pub use store::{EpochStart, Loaded, LoadedSegment, Recovered, Store};
pub use subject::{Pattern, SERVICES, SUBJECT_BYTES_MAX, Selection, Subject, SubjectError, TailPattern};
pub use subscribe::{OnGap, Resync, Start, Subscribe, SubscribeError, SubscribeOptions, Wait};
pub use subscriber::{Newcomers, Subscriber};
pub use topic::{PublisherPlace, RunAppend, Topic, key_hash};
pub use upstream::{ToOwner, Upstream};
pub use wake::{Waiter, thread_waker};
