//! What a session knows of a subscription, and of each log it reads.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use dunlin::CursorFuture;
use dunlin::topic::Reading;
use dunlin::topic::{
    Budget, BudgetSpent, Charge, Cursor, Filter, Log, Newcomers, Pattern, Position, Snapshot,
    SubscribeOptions,
};
use dunlin::wire::SNAPSHOT_HEAD_BYTES;
use hashbrown::HashMap;

use super::plan::RUN_BYTES_MAX;

/// A subscription of the client.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) pattern: Pattern,
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
    /// What it takes of the node's memory.
    pub(super) _charge: Charge,
}

/// A log of a subscription whose place is being found.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) subscription: u32,
    pub(super) cursor: CursorFuture,
    /// What it will take of the node's memory.
    pub(super) charge: Charge,
}

/// Positions by topic and partition, and what they take of the node's memory.
#[derive(Debug)]
pub(super) struct Resumed {
    pub(super) positions: HashMap<(String, u16), Position>,
    charge: Charge,
    bytes: usize,
}

/// A place in a table, half of which may be free, and the text's allocation.
const POSITION_BYTES: usize = 128;

impl Resumed {
    pub(super) fn new(budget: &Arc<Budget>) -> Resumed {
        Resumed { positions: HashMap::new(), charge: Charge::none(budget), bytes: 0 }
    }

    pub(super) fn add(&mut self, topic: &str, partition: u16, position: Position) -> Result<(), BudgetSpent> {
        self.charge.grow_to(self.bytes + POSITION_BYTES + topic.len())?;
        self.bytes += POSITION_BYTES + topic.len();
        self.positions.insert((topic.to_owned(), partition), position);
        Ok(())
    }
}

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
    /// It is among those that are being written.
    pub(super) in_turn: bool,
    /// Something was sent since it last found nothing.
    pub(super) sent: bool,
    /// It is on the list for the next heartbeat.
    pub(super) touched: bool,
    /// The state that is being sent.
    pub(super) sending: Option<Sending>,
    /// Conflated: what was sent, and is yet to be consumed.
    pub(super) in_flight: Option<Position>,
    /// What it takes of the node's memory.
    pub(super) _charge: Charge,
}

/// A state, and how much of it was sent.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) snapshot: Snapshot,
    pub(super) offset: usize,
}

impl Sending {
    /// Bytes of the messages that are yet to be sent.
    pub(super) fn message_bytes(&self) -> u64 {
        let rest = self.snapshot.bytes.len() - self.offset;
        let parts = rest.div_ceil(RUN_BYTES_MAX).max(1);
        (parts * SNAPSHOT_HEAD_BYTES + rest.next_multiple_of(8)) as u64
    }
}

impl Subscription {
    pub(super) fn may_send(&self) -> bool {
        self.sent < self.granted
    }
}

impl Channel {
    /// The last record that was sent or skipped.
    pub(super) fn read_through(&self) -> Position {
        self.cursor.read_through()
    }

    /// The client has been told of everything that was sent or skipped.
    pub(super) fn told_all(&mut self) {
        self.told = self.read_through();
        self.reading.at(self.told);
        self.in_flight = self.cursor.is_conflated().then_some(self.told);
    }

    /// Sends a state, after which the client stands at its position; how many bytes its messages will have.
    pub(super) fn begin_sending(&mut self, snapshot: Snapshot) -> u64 {
        self.sending.insert(Sending { snapshot, offset: 0 }).message_bytes()
    }

    /// What was lost on purpose goes for sent, and the client is not told; whether anything was.
    pub(super) fn pass_over_lost(&mut self) -> bool {
        let given = self.cursor.prev_seq();
        let has_lost = self.told.epoch == self.cursor.next().epoch && given > self.told.seq;
        if has_lost {
            self.told.seq = given;
        }
        has_lost
    }

    /// So much more of the state was sent.
    pub(super) fn sent_of_state(&mut self, bytes: usize) {
        let Some(sending) = &mut self.sending else { return };
        sending.offset += bytes;
        if sending.offset == sending.snapshot.bytes.len() {
            self.sending = None;
            self.told_all();
        }
    }

    /// Whether nothing was skipped since the client was last told where it stands.
    pub(super) fn is_told_all(&self) -> bool {
        self.read_through() == self.told
    }
}
