//! The trait with which subscribers read, its options and its errors.

use std::num::NonZeroU32;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::event::{Event, LogName, Position};
use crate::log::Log;

/// Where a subscription starts in each of its logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At the oldest retained record.
    Earliest,
    /// At the next record to be published.
    #[default]
    Latest,
    /// After this position, up to which the subscriber has already read. Only for a subscription to a single log.
    After(Position),
    /// At the first record that was appended at this time or later, ns since the Unix epoch.
    Time(u64),
    /// With the current state, followed by later records. Only for state topics. In a topic that is created later, the
    /// subscription starts with the topic's state at the first read.
    Snapshot,
}

/// Where a subscription continues after records were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnGap {
    /// At the oldest retained record.
    #[default]
    Oldest,
    /// At the next record to be published. All retained records are skipped, too.
    Newest,
    /// With the current state, followed by later records. Only for state topics.
    Snapshot,
    /// Nowhere: after the gap, the subscription ends with [`SubscribeError::Lost`].
    Fail,
}

/// How a thread waits for events: it spins, parks, or spins for a short time and then parks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitStrategy {
    /// The thread spins and never parks.
    Spin,
    /// The thread spins for up to [`SPIN_US_DEFAULT`](crate::SPIN_US_DEFAULT) µs, and then parks. If the thread's
    /// recent waits were longer than this, it spins for a shorter time, or parks at once.
    #[default]
    Default,
    /// The thread parks at once.
    Parked,
}

/// The options of a subscription. The subscription's pattern is not among them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscribeOptions {
    /// The subscription's name, which operators see.
    pub name: String,
    /// The protocol of the listener to which the subscriber is connected, for operators; empty for a subscriber in this
    /// process.
    pub protocol: &'static str,
    /// Where to start in the logs that exist when the subscription is made. A topic that is created later is read from
    /// its first record, or from its state if `start` is [`Start::Snapshot`].
    pub start: Start,
    /// Where to continue after records were lost.
    pub on_gap: OnGap,
    /// How the subscriber's thread waits for events.
    pub wait: WaitStrategy,
    /// On reliable topics: whether publishers wait until this subscriber has read.
    pub registered: bool,
    /// On state topics: whether each read of a log returns a single record that merges all changes since the previous
    /// read. A slow subscriber therefore never has a backlog. If the changes cannot be merged, or if a snapshot is
    /// shorter, the read returns a snapshot.
    pub conflate: bool,
    /// For tests of subscribers: every record whose sequence number is a multiple of this number is withheld without a
    /// notice, until the subscriber requests it again. A topic can set a default.
    pub test_loss_every: Option<NonZeroU32>,
    /// Whether to read only the records that this process holds, even if the log is a mirror. Nodes set this option
    /// when they subscribe to one another.
    pub local_only: bool,
    /// Whether the pattern has no wildcards. This matters if the subscription follows the state, and a topic without a
    /// state is created later. A subscription without wildcards then fails; one with wildcards reads the new topic
    /// record by record.
    pub is_literal: bool,
    /// Whether a log keeps unread records for this subscriber beyond its retention, within
    /// [`LogLimits::pending_bytes_max`](crate::LogLimits::pending_bytes_max). Listeners set this option for subscribers
    /// that cannot receive gaps.
    pub keeps_history: bool,
}

impl SubscribeOptions {
    /// The name of every subscription that feeds a mirror which several subscribers of another node share.
    pub const MIRROR: &'static str = "mirror";

    /// The name of every subscription that feeds a mirror of one subscriber of another node, for which the owner
    /// [keeps history](SubscribeOptions::keeps_history).
    pub const MIRROR_WITH_HISTORY: &'static str = "mirror of one subscriber without gaps";

    /// Whether the subscription feeds a mirror which several subscribers of another node share.
    pub fn feeds_mirror(&self) -> bool {
        self.local_only && self.name == SubscribeOptions::MIRROR
    }

    /// Whether the log that is read keeps history for this subscription: its subscriber cannot receive gaps, or it
    /// feeds a mirror that may have such a subscriber.
    pub(crate) fn needs_history(&self) -> bool {
        let feeds_private = self.local_only && self.name == SubscribeOptions::MIRROR_WITH_HISTORY;
        self.keeps_history || feeds_private || self.feeds_mirror()
    }

    /// The options and the start for a log that joins the subscription later. If the log keeps no state, it is read
    /// record by record, unless [`is_literal`](SubscribeOptions::is_literal) is set.
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

    /// Whether any of the options requires the log's state.
    pub fn follows_state(&self) -> bool {
        self.conflate || self.start == Start::Snapshot || self.on_gap == OnGap::Snapshot
    }
}

/// The request of a subscriber whose copy of a state is wrong or incomplete: the records after a position, or the whole
/// state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resync {
    /// The records after this position, up to which the subscriber has all records.
    After(Position),
    /// The whole state, because the subscriber's copy is wrong.
    State,
}

/// A subscriber of one or more logs, in the same process or over a connection.
///
/// [`ready`](Subscribe::ready) and [`take`](Subscribe::take) return single events. The provided methods, such as
/// [`next`](Subscribe::next), call these two.
pub trait Subscribe {
    /// Whether an event is available now. If so, [`take`](Subscribe::take) returns the event.
    fn ready(&mut self) -> Result<bool, SubscribeError>;

    /// The event that [`ready`](Subscribe::ready) found.
    ///
    /// # Panics
    /// If the last call was not a call of `ready`, or if `ready` returned `false`.
    fn take(&mut self) -> Event<'_>;

    /// Passes the available events to `each`, at most about `max` of them. Returns the number of events that were
    /// passed.
    fn drain(&mut self, max: usize, each: impl FnMut(Event<'_>)) -> Result<usize, SubscribeError>;

    /// Waits until an event may be available. Returns `false` if `timeout` has passed without an event.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError>;

    /// Async form of [`wait`](Subscribe::wait): the result is ready when an event may be available.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>>;

    /// Continues in this log with what `resync` requests. Events that were sent before may still arrive first.
    fn resync(&mut self, log: &LogName, resync: Resync) -> Result<(), SubscribeError>;

    /// Returns the next event, if one is available now.
    #[inline]
    fn try_next(&mut self) -> Result<Option<Event<'_>>, SubscribeError> {
        Ok(if self.ready()? { Some(self.take()) } else { None })
    }

    /// Waits for the next event and returns it.
    #[inline]
    fn next(&mut self) -> Result<Event<'_>, SubscribeError> {
        while !self.ready()? {
            self.wait(None)?;
        }
        Ok(self.take())
    }

    /// Waits for the next event and returns it. Returns `None` if `timeout` has passed without an event.
    fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Event<'_>>, SubscribeError> {
        while !self.ready()? {
            if !self.wait(Some(timeout))? && !self.ready()? {
                return Ok(None);
            }
        }
        Ok(Some(self.take()))
    }

    /// Waits for the next event and returns it, for async callers.
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
    /// The pattern is not valid.
    #[error("{0}")]
    Subject(#[from] crate::subject::SubjectError),
    /// No topic owns the subject, and the pattern has no wildcard that could match a later topic.
    #[error("no topic owns the subject {0:?}")]
    NoTopic(String),
    /// [`Start::After`] needs a single log, but the pattern matches several.
    #[error("a start position needs a single log, but the pattern {pattern:?} matches at least {logs} logs")]
    ManyLogs {
        /// The pattern.
        pattern: String,
        /// Number of logs that the pattern is known to match; there may be more.
        logs: usize,
    },
    /// The requested start position is after the log's last position.
    #[error("position {requested} is after the log's last position {last}")]
    Ahead {
        /// The requested position.
        requested: Position,
        /// The log's last position.
        last: Position,
    },
    /// The subscription needs a state that the topic cannot provide.
    #[error("topic {topic:?} {why}")]
    NoState {
        /// Name of the topic.
        topic: String,
        /// The reason why the topic cannot provide the state.
        why: &'static str,
    },
    /// Records were lost, and the subscription has ended because of its option [`OnGap::Fail`].
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
    /// All topics of the subscription were deleted, the node is shutting down, or this program has ended the
    /// subscription.
    #[error("the subscription has ended: its topics were deleted, or the node is shutting down")]
    Closed,
    /// The node cannot be reached. The next call tries to connect again.
    #[error("the connection was lost: {0}")]
    Connection(String),
    /// The user lacks a permission for this, or the permission was revoked.
    #[error("{0}")]
    Forbidden(String),
    /// The subscription is to feed the mirror of another node, but this node does not own the topic and lacks the
    /// records.
    #[error("{0}")]
    OwnerAway(String),
    /// The node refused the request with an error that this version does not know.
    #[error("refused by the node: {0}")]
    Refused(String),
}
