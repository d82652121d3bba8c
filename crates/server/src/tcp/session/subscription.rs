//! What a session knows of a subscription, and of each log it reads.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use dunlin::Reading;
use dunlin::topic::{Cursor, Filter, Log, Newcomers, Position, SubscribeOptions};

/// A subscription of the client.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) options: SubscribeOptions,
    pub(super) channels: Vec<u32>,
    /// Bytes the client allows, since the beginning.
    pub(super) granted: u64,
    /// Bytes sent, since the beginning.
    pub(super) sent: u64,
    /// Channels that may have something, for which the client allows no bytes now.
    pub(super) starved: Vec<u32>,
    /// Where logs to come are told.
    pub(super) newcomers: Option<Arc<Newcomers>>,
    /// Logs that have no channel yet.
    pub(super) unannounced: VecDeque<(Arc<Log>, Option<Filter>)>,
    /// Where the client stood when it was cut off.
    pub(super) resumed: Option<Resumed>,
    /// Logs announced at the beginning; `None` once that was said.
    pub(super) beginning: Option<u32>,
}

/// Positions by topic and partition.
pub(super) type Resumed = HashMap<(String, u16), Position>;

/// One log of a subscription.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) subscription: u32,
    pub(super) cursor: Cursor,
    /// Where the client stands when it has read all that was sent.
    pub(super) told: Position,
    /// What operators see of it.
    pub(super) reading: Arc<Reading>,
    /// Bytes sent beyond its turns' share, to be made up for.
    pub(super) debt: Cell<usize>,
    /// The socket took no more of it in the write that is being settled.
    pub(super) stopped: bool,
    /// It is on the list for the next heartbeat.
    pub(super) touched: bool,
}

impl Subscription {
    pub(super) fn may_send(&self) -> bool {
        self.sent < self.granted
    }
}

impl Channel {
    /// The last record that was sent or skipped.
    pub(super) fn read_through(&self) -> Position {
        let next = self.cursor.next();
        Position { seq: next.seq.saturating_sub(1), ..next }
    }

    /// The client has been told of everything that was sent or skipped.
    pub(super) fn told_all(&mut self) {
        self.told = self.read_through();
        self.reading.at(self.told);
    }

    /// Whether nothing was skipped since the client was last told where it stands.
    pub(super) fn is_told_all(&self) -> bool {
        self.read_through() == self.told
    }
}
