//! Subscribing: the one trait, what can be asked in it, and how it can be refused.

use std::num::NonZeroU32;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::event::{Event, LogName, Position};
use crate::log::Log;

/// Where a subscription starts in each log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At the oldest record still held.
    Earliest,
    /// At the next record to be published.
    #[default]
    Latest,
    /// After this position, which was the last one read. Only for one log.
    After(Position),
    /// At the first record appended at or after this time, ns since the Unix epoch.
    Time(u64),
    /// With the state as it is now, then the records after it. Only for stateful topics; the state of one
    /// that is created later is what it is when its log is first read.
    Snapshot,
}

/// Where a reader goes on after records were lost to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnGap {
    /// At the oldest record still held.
    #[default]
    Oldest,
    /// At the next record to be published.
    Newest,
    /// With the state as it is then, then the records after it. Only for stateful topics.
    Snapshot,
    /// Nowhere: the subscription ends with [`SubscribeError::Lost`] after the gap was told.
    Fail,
}

/// How long a waiting caller spins before it parks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// Never parks.
    Spin,
    /// Spins for up to [`SPIN_US_DEFAULT`](crate::SPIN_US_DEFAULT) µs, then parks; at once where waits of late were longer.
    #[default]
    Default,
    /// Parks at once.
    Parked,
}

/// What a subscription asks for beside its pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscribeOptions {
    /// A name that operators see.
    pub name: String,
    /// The door it came through, which operators see too; empty in process.
    pub door: &'static str,
    /// Where to start in logs that exist; a topic created later is read from its first record.
    pub start: Start,
    /// Where to go on after a loss.
    pub on_gap: OnGap,
    /// How to wait.
    pub wait: Wait,
    /// On `reliable` topics: count as one of the readers the publisher waits for.
    pub registered: bool,
    /// On stateful topics: each read gives one record for each log that merges all that came since the one
    /// before, so that a slow reader is late by its own work, never by a queue. Where that
    /// cannot be, or a snapshot is shorter, it is a snapshot.
    pub conflate: bool,
    /// For tests of readers: every record whose sequence divides by this is withheld once, in silence. A topic may say so
    /// for all who do not.
    pub lose_every: Option<NonZeroU32>,
    /// What this process holds, and no more: of a log that another one owns, its mirror as it is. So ask nodes each other.
    pub here: bool,
    /// It names its subjects, without wildcards: where it wants the state of a topic that keeps none, it is refused, whenever the topic
    /// comes. With wildcards a topic without a state that comes later is read record by record.
    pub names_subjects: bool,
}

impl SubscribeOptions {
    /// The name of the reader that feeds a node's mirror for all who read the log there.
    pub const MIRROR: &'static str = "mirror";

    /// Whether it feeds such a mirror.
    pub fn feeds_mirror(&self) -> bool {
        self.here && self.name == SubscribeOptions::MIRROR
    }

    /// What they come to for a log that joins the subscription later, or that it goes on with, and where a log that joins begins.
    /// See [`names_subjects`](SubscribeOptions::names_subjects) for a log without a state.
    pub fn of_newcomer(&self, log: &Log) -> (SubscribeOptions, Start) {
        let mut options = self.clone();
        if !log.is_stateful() && !self.names_subjects {
            options.conflate = false;
            if options.on_gap == OnGap::Snapshot {
                options.on_gap = OnGap::Oldest;
            }
            options.start = Start::Earliest;
        }
        let start = if options.start == Start::Snapshot { Start::Snapshot } else { Start::Earliest };
        (options, start)
    }

    /// Whether the state is what matters to this reader, not each of the records.
    pub fn follows_state(&self) -> bool {
        self.conflate || self.start == Start::Snapshot || self.on_gap == OnGap::Snapshot
    }
}

/// What a reader asks for that found out by itself that it is no longer right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resync {
    /// What follows this position, up to which it has everything: records, or a state that holds them.
    After(Position),
    /// The state: what it holds is wrong.
    State,
}

/// Reads one or more logs, in process or remote.
///
/// The primitive is [`ready`](Subscribe::ready) then [`take`](Subscribe::take); the rest is made of it.
pub trait Subscribe {
    /// Whether an event is there now.
    fn ready(&mut self) -> Result<bool, SubscribeError>;

    /// The event that [`ready`](Subscribe::ready) found.
    ///
    /// # Panics
    /// When `ready` did not say `true` just before.
    fn take(&mut self) -> Event<'_>;

    /// Hands over every event that is there now, at most about `max` of them; how many it was.
    fn drain(&mut self, max: usize, each: impl FnMut(Event<'_>)) -> Result<usize, SubscribeError>;

    /// Waits until an event may be there; `false` after `timeout` without one.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError>;

    /// Waits as async callers do: ready when [`ready`](Subscribe::ready) is worth another call.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>>;

    /// Goes on in this log from where `resync` says; what was on its way from there may still come before.
    fn resync(&mut self, log: &LogName, resync: Resync) -> Result<(), SubscribeError>;

    /// The next event that is there now.
    #[inline]
    fn try_next(&mut self) -> Result<Option<Event<'_>>, SubscribeError> {
        Ok(if self.ready()? { Some(self.take()) } else { None })
    }

    /// The next event, however long it takes.
    #[inline]
    fn next(&mut self) -> Result<Event<'_>, SubscribeError> {
        while !self.ready()? {
            self.wait(None)?;
        }
        Ok(self.take())
    }

    /// The next event, or `None` after `timeout` without one.
    fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Event<'_>>, SubscribeError> {
        while !self.ready()? {
            if !self.wait(Some(timeout))? && !self.ready()? {
                return Ok(None);
            }
        }
        Ok(Some(self.take()))
    }

    /// The next event, for async callers.
    fn next_async(&mut self) -> impl Future<Output = Result<Event<'_>, SubscribeError>>
    where
        Self: Sized,
    {
        async move {
            while !self.ready()? {
                std::future::poll_fn(|cx| self.poll_ready(cx)).await?;
            }
            Ok(self.take())
        }
    }
}

/// Why a subscription was refused, or ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The pattern breaks the rules of names.
    #[error("{0}")]
    Subject(#[from] crate::subject::SubjectError),
    /// No topic owns the subject, and it holds no wildcard that could wait for one.
    #[error("no topic owns the subject {0:?}")]
    NoTopic(String),
    /// [`Start::After`] with a pattern that spans several logs.
    #[error("a position names one log, the pattern {pattern:?} spans {logs} or more")]
    ManyLogs {
        /// The pattern.
        pattern: String,
        /// How many logs it spans at least: topics to come may add to them.
        logs: usize,
    },
    /// A start after the log's end: nobody has handed out that position.
    #[error("position {asked} lies after the log's last, {last}")]
    Ahead {
        /// What was asked for.
        asked: Position,
        /// Where the log ends.
        last: Position,
    },
    /// A state was asked for that the topic cannot give.
    #[error("topic {topic:?} {why}")]
    NoState {
        /// The topic.
        topic: String,
        /// Why not.
        why: &'static str,
    },
    /// Records were lost and the subscription asked to end in that case.
    #[error("records were lost, and the subscription ends at a gap")]
    Lost,
    /// A named limit is reached.
    #[error("limit {limit} of {value} is reached")]
    Limit {
        /// The limit's name.
        limit: &'static str,
        /// Its value.
        value: u64,
    },
    /// Everything subscribed to was deleted, or the node is shutting down.
    #[error("the subscription is closed")]
    Closed,
    /// The node cannot be reached; calling again tries again.
    #[error("connection: {0}")]
    Connection(String),
    /// A permission is missing, or was taken away.
    #[error("{0}")]
    Forbidden(String),
    /// To another node: this one does not own the topic, and cannot feed a mirror of it from there.
    #[error("{0}")]
    OwnerAway(String),
    /// A refusal by a remote node that this version has no variant for.
    #[error("refused by the node: {0}")]
    Refused(String),
}
