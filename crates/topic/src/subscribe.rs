//! The trait for subscribing, with its options and errors.

use std::num::NonZeroU32;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::event::{Event, LogName, Position};
use crate::log::Log;

/// The position in each log at which a subscription starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At the oldest retained record.
    Earliest,
    /// At the next record to be published.
    #[default]
    Latest,
    /// After this position, which is the last one that the subscriber has read. Only for a single log.
    After(Position),
    /// At the first record appended at or after this time, ns since the Unix epoch.
    Time(u64),
    /// With the current state, followed by later records. Only for state topics. A topic that is created later starts
    /// with its state at the first read.
    Snapshot,
}

/// The position at which a subscription continues after records were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnGap {
    /// At the oldest retained record.
    #[default]
    Oldest,
    /// At the next record to be published.
    Newest,
    /// With the current state, followed by later records. Only for state topics.
    Snapshot,
    /// At no position: after the gap, the subscription ends with [`SubscribeError::Lost`].
    Fail,
}

/// The method of waiting for records: spinning, parking, or spinning for a short time and then parking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitStrategy {
    /// The caller spins and never parks.
    Spin,
    /// The caller spins for up to [`SPIN_US_DEFAULT`](crate::SPIN_US_DEFAULT) µs, then parks. If recent waits were
    /// longer, the caller parks at once.
    #[default]
    Default,
    /// The caller parks at once.
    Parked,
}

/// The options of a subscription, besides its pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscribeOptions {
    /// The name that operators see.
    pub name: String,
    /// The listener of the subscription, for operators; empty in process.
    pub protocol: &'static str,
    /// The start in existing logs. The logs of a topic that is created later are read from their first record.
    pub start: Start,
    /// The position at which to continue after a loss.
    pub on_gap: OnGap,
    /// How the caller waits for events.
    pub wait: WaitStrategy,
    /// On reliable topics: whether publishers wait for this subscriber.
    pub registered: bool,
    /// On state topics, whether each read returns one record for each log, which merges all changes since the previous
    /// read. A slow subscriber thus never has a backlog. If the changes cannot be merged, or a snapshot is shorter, the
    /// read returns a snapshot.
    pub conflate: bool,
    /// For tests of subscribers: withholds, once and without notice, every record whose sequence is a multiple of this
    /// number. A topic can set a default.
    pub test_loss_every: Option<NonZeroU32>,
    /// Whether to read only records that this process holds, even if the log is a mirror. Nodes use this option for
    /// their subscriptions to one another.
    pub local_only: bool,
    /// Whether the pattern has no wildcards. A subscription without wildcards that follows the state fails if the topic
    /// keeps no state, even if the topic is created later. With wildcards, a topic without a state that is created
    /// later is read record by record.
    pub is_literal: bool,
}

impl SubscribeOptions {
    /// The name of the subscription that feeds a node's mirror.
    pub const MIRROR: &'static str = "mirror";

    /// Whether the subscription feeds a node's mirror.
    pub fn feeds_mirror(&self) -> bool {
        self.local_only && self.name == SubscribeOptions::MIRROR
    }

    /// The options and the start for a log that joins the subscription later. If that log keeps no state,
    /// [`is_literal`](SubscribeOptions::is_literal) decides whether the log is read record by record.
    pub fn for_new_log(&self, log: &Log) -> (SubscribeOptions, Start) {
        let mut options = self.clone();
        if !log.is_stateful() && !self.is_literal {
            options.conflate = false;
            if options.on_gap == OnGap::Snapshot {
                options.on_gap = OnGap::Oldest;
            }
            options.start = Start::Earliest;
        }
        let start = if options.start == Start::Snapshot { Start::Snapshot } else { Start::Earliest };
        (options, start)
    }

    /// Whether the subscriber follows the state instead of each record.
    pub fn follows_state(&self) -> bool {
        self.conflate || self.start == Start::Snapshot || self.on_gap == OnGap::Snapshot
    }
}

/// The point from which a subscriber corrects its copy of a state: a position, or a new copy of the whole state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resync {
    /// The subscriber continues after this position, up to which it has all records.
    After(Position),
    /// The subscriber receives the whole state, because its copy is wrong.
    State,
}

/// A subscriber of one or more logs, in the same process or over a connection.
///
/// The other methods that return events are based on [`ready`](Subscribe::ready) and [`take`](Subscribe::take).
pub trait Subscribe {
    /// Whether an event is available now.
    fn ready(&mut self) -> Result<bool, SubscribeError>;

    /// The event that [`ready`](Subscribe::ready) found.
    ///
    /// # Panics
    /// If `ready` did not return `true` just before.
    fn take(&mut self) -> Event<'_>;

    /// Passes each available event to `each`, at most about `max` of them. Returns the number of events that were
    /// passed.
    fn drain(&mut self, max: usize, each: impl FnMut(Event<'_>)) -> Result<usize, SubscribeError>;

    /// Waits until an event may be available; `false` after `timeout` without one.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError>;

    /// Async form of [`wait`](Subscribe::wait). The result is ready when [`ready`](Subscribe::ready) may return another
    /// result than before.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>>;

    /// Continues in this log at the position that `resync` names. Events that were already sent may still arrive first.
    fn resync(&mut self, log: &LogName, resync: Resync) -> Result<(), SubscribeError>;

    /// The next event, if one is available now.
    #[inline]
    fn try_next(&mut self) -> Result<Option<Event<'_>>, SubscribeError> {
        Ok(if self.ready()? { Some(self.take()) } else { None })
    }

    /// Waits for the next event.
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

/// The reason why a subscription was refused or has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The pattern is invalid.
    #[error("{0}")]
    Subject(#[from] crate::subject::SubjectError),
    /// No topic owns the subject, and the pattern has no wildcard that could match a later topic.
    #[error("no topic owns the subject {0:?}")]
    NoTopic(String),
    /// [`Start::After`] needs a single log, but the pattern spans several.
    #[error("a start position needs a single log, but the pattern {pattern:?} matches at least {logs} logs")]
    ManyLogs {
        /// The pattern.
        pattern: String,
        /// Minimum number of logs that the pattern spans; later topics may add more.
        logs: usize,
    },
    /// The start position is after the log's end.
    #[error("position {requested} is after the log's last position {last}")]
    Ahead {
        /// The requested position.
        requested: Position,
        /// The log's last position.
        last: Position,
    },
    /// The topic cannot provide the requested state.
    #[error("topic {topic:?} {why}")]
    NoState {
        /// The topic.
        topic: String,
        /// The reason why the topic cannot provide the state.
        why: &'static str,
    },
    /// Records were lost. The subscription ends, because its options require this ([`OnGap::Fail`]).
    #[error("records were lost, and the subscription was requested to end at a gap")]
    Lost,
    /// A named limit is reached.
    #[error("the limit {limit} = {value} is reached")]
    Limit {
        /// The limit's name.
        limit: &'static str,
        /// The limit's value.
        value: u64,
    },
    /// All subscribed topics were deleted, or the node is shutting down.
    #[error("the subscription is closed")]
    Closed,
    /// The node cannot be reached. Another call tries to connect again.
    #[error("the connection was lost: {0}")]
    Connection(String),
    /// A permission is missing or was revoked.
    #[error("{0}")]
    Forbidden(String),
    /// The request came from another node: this node does not own the topic and cannot feed a mirror of it.
    #[error("{0}")]
    OwnerAway(String),
    /// The node refused the request with an error for which this version has no variant.
    #[error("refused by the node: {0}")]
    Refused(String),
}
