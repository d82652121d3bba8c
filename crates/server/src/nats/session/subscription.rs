//! The subscriptions of a session, and the logs that they read.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use dunlin::topic::{
    Cursor, Filter, Log, MemoryCharge, NewLogs, Pattern, Position, SubscribeOptions, SubscriberProgress,
};
use dunlin::{CursorFuture, Inbox, LogSearch};

use super::own::OwnRecords;

/// If the subject of a `SUB` begins with this prefix, messages contain sequence numbers.
pub(super) const SEQUENCED: &str = "$DUNLIN.seq.";

/// A subscription of a NATS client.
#[derive(Debug)]
pub(super) struct Subscription {
    /// The name (`sid`) that the client chose for the subscription.
    pub(super) sid: Box<[u8]>,
    /// The pattern of the subjects to receive. If it belongs to an inbox, the inbox exists while the subscription does.
    pub(super) pattern: Pattern,
    /// The name of the queue group that the subscription joins; `None` if it joins none.
    pub(super) queue: Option<Box<str>>,
    /// Whether messages contain sequence numbers, and notices such as gaps are sent as messages.
    pub(super) is_sequenced: bool,
    /// Number of messages after which the subscription ends.
    pub(super) max: Option<u64>,
    pub(super) delivered: u64,
    /// Number of the subscription's messages in the write that is being built.
    pub(super) in_write: Cell<u64>,
    pub(super) channels: BTreeSet<u32>,
    /// Numbers of the channels whose start positions are being looked up.
    pub(super) opening: BTreeSet<u32>,
    /// Whether the subscription ends when all its channels and memberships have ended.
    pub(super) is_ending: bool,
    /// Numbers of the memberships in queue groups. A subscription with a queue has these instead of channels.
    pub(super) members: BTreeSet<u32>,
    /// The inbox for replies that this subscription receives outside `_INBOX`. It exists until no subscription uses it.
    pub(super) reply_inbox: Option<Inbox>,
    /// Time at which the other nodes last responded that they have no subscriber to this subscription's subjects.
    pub(super) no_subscriber_since: Option<Instant>,
    /// Receives the logs of topics that are created after the subscription and match its pattern.
    pub(super) newcomers: Arc<NewLogs>,
    pub(super) _charge: MemoryCharge,
}

impl Subscription {
    /// The subject of the subscription's `SUB`, as the client wrote it.
    pub(super) fn subject(&self) -> String {
        let prefix = if self.is_sequenced { SEQUENCED } else { "" };
        format!("{prefix}{}", self.pattern.as_str())
    }
}

/// A log to read, and the filter that selects its records; `None` selects all.
pub(super) type FilteredLog = (Arc<Log>, Option<Filter>);

/// A subscription that does not read all its logs yet.
#[derive(Debug)]
pub(super) struct StartingSubscription {
    pub(super) number: u32,
    pub(super) logs: VecDeque<FilteredLog>,
    /// The search for further logs; `None` if all existing logs were found.
    pub(super) search: Option<LogSearch>,
    /// Whether the client's permissions have changed since the subscription began to start.
    pub(super) is_stale: bool,
}

/// A subscription that has ended, but whose channels and memberships still have to end.
#[derive(Debug)]
pub(super) struct LeavingSubscription {
    pub(super) channels: BTreeSet<u32>,
    pub(super) members: BTreeSet<u32>,
}

/// A channel: the state of a subscription in one log.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) subscription: u32,
    pub(super) cursor: Cursor,
    /// The channel's progress, which operators see.
    pub(super) progress: Arc<SubscriberProgress>,
    /// Whether the channel skips records that the connection published itself.
    pub(super) skips_own: bool,
    /// If the subscription is ending, the position of the last record to deliver.
    pub(super) until: Option<Position>,
    /// Number of bytes that the channel sent beyond its share. In return, the channel is left out of later writes.
    pub(super) debt: Cell<usize>,
    /// Whether records of the channel are in the write that is being built.
    pub(super) is_selected: bool,
    /// Whether the channel has sent a record since it last had nothing to send.
    pub(super) sent: bool,
    pub(super) _charge: MemoryCharge,
}

#[derive(Debug)]
pub(super) struct PendingChannel {
    pub(super) subscription: u32,
    pub(super) options: SubscribeOptions,
    /// The pattern of the topic's subjects; `None` if the topic is newer than the subscription.
    pub(super) subjects: Option<Pattern>,
    pub(super) log: Arc<Log>,
    pub(super) cursor: CursorFuture,
    pub(super) charge: MemoryCharge,
}

impl Subscription {
    /// Number of messages that the subscription may still receive.
    pub(super) fn left(&self) -> u64 {
        self.max.map_or(u64::MAX, |max| max.saturating_sub(self.delivered + self.in_write.get()))
    }

    /// Whether the subscription is ending and has delivered all its messages.
    pub(super) fn has_ended(&self) -> bool {
        self.is_ending && self.channels.is_empty() && self.members.is_empty()
    }

    /// Whether the subscription has received its maximum number of messages.
    pub(super) fn is_over(&self) -> bool {
        self.max.is_some_and(|max| self.delivered >= max)
    }
}

impl Channel {
    /// Publishes the position of the last record that was sent or skipped. Operators see it, and publishers to a
    /// reliable topic may wait for it.
    pub(super) fn record_position(&self) {
        let through = self.cursor.read_through();
        self.progress.set_position(through);
        if self.cursor.is_registered() {
            self.cursor.consume(through.seq);
        }
    }

    /// Up to this position, the session knows for each record of the log whether the connection itself published the
    /// record. `None` if the channel may deliver records without this knowledge.
    pub(super) fn own_known_through(&self, own: &OwnRecords) -> Option<Position> {
        if !self.skips_own || self.cursor.is_registered() {
            return None;
        }
        own.known_through(self.cursor.log())
    }

    /// Whether the subscription is ending and the channel has delivered its last record.
    pub(super) fn is_through(&self) -> bool {
        self.until.is_some_and(|until| self.is_past(until))
    }

    /// Whether the channel has delivered the record at this position, or can no longer deliver it.
    pub(super) fn is_past(&self, last: Position) -> bool {
        let next = self.cursor.next();
        next.epoch != last.epoch || next.seq > last.seq
    }
}
