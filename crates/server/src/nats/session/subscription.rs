//! A session's subscriptions, and the logs that they read.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use dunlin::topic::{
    Cursor, Filter, Log, MemoryCharge, NewLogs, Pattern, Position, SubscribeOptions, SubscriberProgress,
};
use dunlin::{CursorFuture, Inbox};

/// The prefix by which a subscription asks for sequence numbers in its messages.
pub(super) const SEQUENCED: &str = "$DUNLIN.seq.";

/// A subscription of a NATS client.
#[derive(Debug)]
pub(super) struct Subscription {
    /// The client's name (`sid`) for the subscription.
    pub(super) sid: Box<[u8]>,
    /// The pattern of the subjects to receive. While the subscription exists, so does the inbox that contains the
    /// pattern.
    pub(super) pattern: Pattern,
    /// The queue group with which the subscription shares its messages, if there is one.
    pub(super) queue: Option<Box<str>>,
    /// Whether each message has its sequence number, and gaps are sent as messages.
    pub(super) is_sequenced: bool,
    /// Number of messages after which the subscription ends.
    pub(super) max: Option<u64>,
    pub(super) delivered: u64,
    /// Number of the subscription's messages in the write that is being built.
    pub(super) in_write: Cell<u64>,
    pub(super) channels: BTreeSet<u32>,
    /// Numbers of the channels whose start positions are being looked up.
    pub(super) opening: BTreeSet<u32>,
    /// Whether the subscription ends as soon as its channels have ended.
    pub(super) is_ending: bool,
    /// Numbers of the memberships in queue groups, which a subscription with a queue has instead of channels.
    pub(super) members: BTreeSet<u32>,
    /// The reply inbox for subjects under the subscription's prefix. It ends with the last subscription that uses it.
    pub(super) reply_inbox: Option<Inbox>,
    /// Time at which the other nodes last reported that they have no subscriber to this subscription's subjects.
    pub(super) no_subscriber_since: Option<Instant>,
    /// Receives the logs of topics that are created later and match the pattern.
    pub(super) newcomers: Arc<NewLogs>,
    pub(super) _charge: MemoryCharge,
}

impl Subscription {
    /// The subject as the client wrote it.
    pub(super) fn subject(&self) -> String {
        let prefix = if self.is_sequenced { SEQUENCED } else { "" };
        format!("{prefix}{}", self.pattern.as_str())
    }
}

/// A log to read, and the filter that selects its records.
pub(super) type FilteredLog = (Arc<Log>, Option<Filter>);

/// A subscription's channel: its state in one log.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) subscription: u32,
    pub(super) cursor: Cursor,
    /// Progress of the channel, shown to operators.
    pub(super) progress: Arc<SubscriberProgress>,
    /// Whether the channel skips records that the connection published itself.
    pub(super) skips_own: bool,
    /// Position of the last record to deliver, if the channel is ending.
    pub(super) until: Option<Position>,
    /// Bytes that were sent in addition to the channel's share. The channel skips writes until they are compensated.
    pub(super) debt: Cell<usize>,
    /// Whether records of the channel are in the write that is being built.
    pub(super) is_selected: bool,
    /// Whether the channel has sent a record since it last ran out of records.
    pub(super) sent: bool,
    pub(super) _charge: MemoryCharge,
}

#[derive(Debug)]
pub(super) struct PendingChannel {
    pub(super) subscription: u32,
    pub(super) options: SubscribeOptions,
    /// The pattern of the topic's subjects, if the topic existed before the client subscribed.
    pub(super) subjects: Option<Pattern>,
    pub(super) cursor: CursorFuture,
    pub(super) charge: MemoryCharge,
}

impl Subscription {
    /// Number of messages that may still be delivered before the limit is reached.
    pub(super) fn left(&self) -> u64 {
        self.max.map_or(u64::MAX, |max| max.saturating_sub(self.delivered + self.in_write.get()))
    }

    /// Whether a subscription that is ending has delivered all its messages.
    pub(super) fn has_ended(&self) -> bool {
        self.is_ending && self.channels.is_empty() && self.members.is_empty()
    }

    /// Whether the subscription has reached its message limit.
    pub(super) fn is_over(&self) -> bool {
        self.max.is_some_and(|max| self.delivered >= max)
    }
}

impl Channel {
    /// Records the position of the last record that was sent or skipped, for operators and for waiting publishers.
    pub(super) fn record_position(&self) {
        let through = self.cursor.read_through();
        self.progress.set_position(through);
        if self.cursor.is_registered() {
            self.cursor.consume(through.seq);
        }
    }

    /// Whether the channel has delivered its last record.
    pub(super) fn is_through(&self) -> bool {
        self.until.is_some_and(|until| self.is_past(until))
    }

    /// Whether the channel has delivered the record at this position, or will never deliver it.
    pub(super) fn is_past(&self, last: Position) -> bool {
        let next = self.cursor.next();
        next.epoch != last.epoch || next.seq > last.seq
    }
}
