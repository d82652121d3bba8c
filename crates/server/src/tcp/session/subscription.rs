//! A session's subscriptions, and the logs that they read.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use dunlin::CursorFuture;
use dunlin::topic::SubscriberProgress;
use dunlin::topic::{
    Budget, BudgetSpent, Charge, Cursor, Filter, Log, NewLogs, Pattern, Position, Snapshot, SubscribeOptions,
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
    /// Bytes that the client allows, in total.
    pub(super) granted: u64,
    /// Bytes sent, in total.
    pub(super) sent: u64,
    /// Channels with records that wait for credit.
    pub(super) starved: Vec<u32>,
    /// Receives logs of topics that are created later.
    pub(super) newcomers: Option<Arc<NewLogs>>,
    /// Logs without a channel.
    pub(super) unannounced: VecDeque<(Arc<Log>, Option<Filter>)>,
    /// The client's positions when its connection broke.
    pub(super) resumed: Option<ResumePositions>,
    /// Logs announced so far; `None` after the announcement is complete.
    pub(super) beginning: Option<u32>,
    /// The memory charge.
    pub(super) _charge: Charge,
}

/// A channel whose start position is being looked up.
#[derive(Debug)]
pub(super) struct PendingChannel {
    pub(super) subscription: u32,
    pub(super) cursor: CursorFuture,
    /// The memory charge.
    pub(super) charge: Charge,
}

/// Positions by topic and partition, and their memory charge.
#[derive(Debug)]
pub(super) struct ResumePositions {
    pub(super) positions: HashMap<(String, u16), Position>,
    charge: Charge,
    bytes: usize,
}

/// Approximate memory of a position: a table entry at half load, and the allocation of its text.
const POSITION_BYTES: usize = 128;

impl ResumePositions {
    pub(super) fn new(budget: &Arc<Budget>) -> ResumePositions {
        ResumePositions { positions: HashMap::new(), charge: Charge::none(budget), bytes: 0 }
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
    /// The client's position when it has read everything that was sent.
    pub(super) reported: Position,
    /// Progress of the channel, shown to operators.
    pub(super) reading: Arc<SubscriberProgress>,
    /// Bytes sent beyond the channel's share, to be compensated.
    pub(super) debt: Cell<usize>,
    /// Whether the socket took no more of the channel in the last write.
    pub(super) stopped: bool,
    /// Whether the channel is part of the write that is being built.
    pub(super) in_turn: bool,
    /// Whether the channel has sent a record since it last ran out of records.
    pub(super) sent: bool,
    /// Whether the channel is in the next heartbeat.
    pub(super) touched: bool,
    /// The state that is being sent.
    pub(super) sending: Option<SnapshotTransfer>,
    /// With conflation: records that were sent and not yet consumed.
    pub(super) in_flight: Option<Position>,
    /// The memory charge.
    pub(super) _charge: Charge,
}

/// A state, and the number of its bytes already sent.
#[derive(Debug)]
pub(super) struct SnapshotTransfer {
    pub(super) snapshot: Snapshot,
    pub(super) offset: usize,
}

impl SnapshotTransfer {
    /// Bytes of the messages that are still to be sent.
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

    /// Notes that the client knows the current position.
    pub(super) fn mark_all_reported(&mut self) {
        self.reported = self.read_through();
        self.reading.at(self.reported);
        self.in_flight = self.cursor.is_conflated().then_some(self.reported);
    }

    /// Starts to send a state. Returns the bytes of its messages.
    pub(super) fn begin_sending(&mut self, snapshot: Snapshot) -> u64 {
        self.sending.insert(SnapshotTransfer { snapshot, offset: 0 }).message_bytes()
    }

    /// Treats records lost on purpose as sent, without a notice to the client. Returns whether there were
    /// any.
    pub(super) fn pass_over_lost(&mut self) -> bool {
        let given = self.cursor.prev_seq();
        let has_lost = self.reported.epoch == self.cursor.next().epoch && given > self.reported.seq;
        if has_lost {
            self.reported.seq = given;
        }
        has_lost
    }

    /// Notes that more bytes of the state were sent.
    pub(super) fn sent_of_state(&mut self, bytes: usize) {
        let Some(sending) = &mut self.sending else { return };
        sending.offset += bytes;
        if sending.offset == sending.snapshot.bytes.len() {
            self.sending = None;
            self.mark_all_reported();
        }
    }

    /// Whether the client knows the current position.
    pub(super) fn is_all_reported(&self) -> bool {
        self.read_through() == self.reported
    }
}
