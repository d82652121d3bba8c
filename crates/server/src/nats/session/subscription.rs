//! What a session knows of a subscription, and of each log it reads.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use dunlin::topic::{Charge, Cursor, Filter, Log, Newcomers, Pattern, Position, Reading, SubscribeOptions};
use dunlin::{CursorFuture, Inbox};

/// What stands before the subject in subscriptions whose messages are to have sequences.
pub(super) const SEQUENCED: &str = "$DUNLIN.seq.";

/// A subscription of the client.
#[derive(Debug)]
pub(super) struct Subscription {
    /// The client's name for it.
    pub(super) sid: Box<[u8]>,
    /// What it is to; inside an inbox, the inbox is kept as long as it.
    pub(super) pattern: Pattern,
    /// The queue group it shares its messages with.
    pub(super) queue: Option<Box<str>>,
    /// Every message has its sequence, and gaps are told as messages.
    pub(super) is_sequenced: bool,
    /// It ends after so many messages.
    pub(super) max: Option<u64>,
    pub(super) delivered: u64,
    /// Messages in the write that is being made.
    pub(super) in_write: Cell<u64>,
    pub(super) channels: Vec<u32>,
    /// It ends when its channels have come to their ends.
    pub(super) is_ending: bool,
    /// Places in groups, in the place of channels.
    pub(super) members: Vec<u32>,
    /// The reply inbox for subjects with the client's own prefix. It ends with the last subscription that uses it.
    pub(super) answers: Option<Inbox>,
    /// When other nodes last answered that they have no subscriber for the same subjects.
    pub(super) alone_since: Option<Instant>,
    /// Where logs to come are told.
    pub(super) newcomers: Arc<Newcomers>,
    /// What it takes of the node's memory.
    pub(super) _charge: Charge,
}

impl Subscription {
    /// The subject as the client wrote it.
    pub(super) fn subject(&self) -> String {
        let prefix = if self.is_sequenced { SEQUENCED } else { "" };
        format!("{prefix}{}", self.pattern.as_str())
    }
}

/// A log that a subscription is to read, and what it skips of it.
pub(super) type ToRead = (Arc<Log>, Option<Filter>);

/// One log of a subscription.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) subscription: u32,
    pub(super) cursor: Cursor,
    /// What operators see of it.
    pub(super) reading: Arc<Reading>,
    /// Records that the connection published itself are left out.
    pub(super) skips_own: bool,
    /// The last record that is to be given.
    pub(super) until: Option<Position>,
    /// Bytes sent beyond its turns' share, to be made up for.
    pub(super) debt: Cell<usize>,
    /// It is among those that are being written.
    pub(super) in_turn: bool,
    /// Something was sent since it last found nothing.
    pub(super) sent: bool,
    /// What it takes of the node's memory.
    pub(super) _charge: Charge,
}

/// A log of a subscription whose place is being found.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) subscription: u32,
    /// The channel it will be.
    pub(super) channel: u32,
    pub(super) options: SubscribeOptions,
    /// The subjects of the log's topic, where the client has subscribed after it was there.
    pub(super) subjects: Option<Pattern>,
    pub(super) cursor: CursorFuture,
    /// What it will take of the node's memory.
    pub(super) charge: Charge,
}

impl Subscription {
    /// How many messages it may still be given.
    pub(super) fn left(&self) -> u64 {
        self.max.map_or(u64::MAX, |max| max.saturating_sub(self.delivered + self.in_write.get()))
    }

    /// It was to end in order, and has been given what it was to be given.
    pub(super) fn has_ended(&self) -> bool {
        self.is_ending && self.channels.is_empty() && self.members.is_empty()
    }

    /// Nothing more is to be given of it.
    pub(super) fn is_over(&self) -> bool {
        self.max.is_some_and(|max| self.delivered >= max)
    }
}

impl Channel {
    /// It was given everything that it was to be given.
    pub(super) fn is_through(&self) -> bool {
        self.until.is_some_and(|until| self.is_past(until))
    }

    /// It was given the record there, or cannot be any more.
    pub(super) fn is_past(&self, last: Position) -> bool {
        let next = self.cursor.next();
        next.epoch != last.epoch || next.seq > last.seq
    }
}
