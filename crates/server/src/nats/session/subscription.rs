//! A session's subscriptions, and the logs that they read.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use dunlin::topic::{
    Charge, Cursor, Filter, Log, NewLogs, Pattern, Position, SubscribeOptions, SubscriberProgress,
};
use dunlin::{CursorFuture, Inbox};

/// The subject prefix of subscriptions whose messages carry sequence numbers.
pub(super) const SEQUENCED: &str = "$DUNLIN.seq.";

/// A subscription of the client.
#[derive(Debug)]
pub(super) struct Subscription {
    /// The client's name for the subscription.
    pub(super) sid: Box<[u8]>,
    /// The pattern. A subscription inside an inbox keeps the inbox open.
    pub(super) pattern: Pattern,
    /// The queue group that shares the messages.
    pub(super) queue: Option<Box<str>>,
    /// Whether each message carries its sequence number, and gaps are sent as messages.
    pub(super) is_sequenced: bool,
    /// The subscription ends after this many messages.
    pub(super) max: Option<u64>,
    pub(super) delivered: u64,
    /// Messages of the write that is being built.
    pub(super) in_write: Cell<u64>,
    pub(super) channels: BTreeSet<u32>,
    /// Channels whose start positions are being looked up.
    pub(super) opening: BTreeSet<u32>,
    /// Whether the subscription ends when its channels have ended.
    pub(super) is_ending: bool,
    /// Memberships in groups, instead of channels.
    pub(super) members: BTreeSet<u32>,
    /// The reply inbox for subjects with the client's own prefix. The inbox ends with the last subscription that
    /// uses it.
    pub(super) answers: Option<Inbox>,
    /// Time at which other nodes last answered that they have no subscriber for the same subjects.
    pub(super) alone_since: Option<Instant>,
    /// Receives logs of topics that are created later.
    pub(super) newcomers: Arc<NewLogs>,
    /// The memory charge.
    pub(super) _charge: Charge,
}

impl Subscription {
    /// The subject as the client wrote it.
    pub(super) fn subject(&self) -> String {
        let prefix = if self.is_sequenced { SEQUENCED } else { "" };
        format!("{prefix}{}", self.pattern.as_str())
    }
}

/// A log to read, and the filter of its records.
pub(super) type FilteredLog = (Arc<Log>, Option<Filter>);

/// One log of a subscription.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) subscription: u32,
    pub(super) cursor: Cursor,
    /// Progress of the channel, shown to operators.
    pub(super) reading: Arc<SubscriberProgress>,
    /// Whether the channel skips records that the connection published itself.
    pub(super) skips_own: bool,
    /// The last record to deliver.
    pub(super) until: Option<Position>,
    /// Bytes sent beyond the channel's share, to be compensated.
    pub(super) debt: Cell<usize>,
    /// Whether the channel is part of the write that is being built.
    pub(super) in_turn: bool,
    /// Whether the channel has sent a record since it last ran out of records.
    pub(super) sent: bool,
    /// The memory charge.
    pub(super) _charge: Charge,
}

/// A channel whose start position is being looked up.
#[derive(Debug)]
pub(super) struct PendingChannel {
    pub(super) subscription: u32,
    pub(super) options: SubscribeOptions,
    /// The subjects of the topic, if it existed before the client subscribed.
    pub(super) subjects: Option<Pattern>,
    pub(super) cursor: CursorFuture,
    /// The memory charge.
    pub(super) charge: Charge,
}

impl Subscription {
    /// How many messages may still be delivered.
    pub(super) fn left(&self) -> u64 {
        self.max.map_or(u64::MAX, |max| max.saturating_sub(self.delivered + self.in_write.get()))
    }

    /// Whether a subscription that ends in order has delivered everything.
    pub(super) fn has_ended(&self) -> bool {
        self.is_ending && self.channels.is_empty() && self.members.is_empty()
    }

    /// Whether the message limit is reached.
    pub(super) fn is_over(&self) -> bool {
        self.max.is_some_and(|max| self.delivered >= max)
    }
}

impl Channel {
    /// Whether the channel has delivered its last record.
    pub(super) fn is_through(&self) -> bool {
        self.until.is_some_and(|until| self.is_past(until))
    }

    /// Whether the record was delivered, or can no longer be delivered.
    pub(super) fn is_past(&self, last: Position) -> bool {
        let next = self.cursor.next();
        next.epoch != last.epoch || next.seq > last.seq
    }
}
