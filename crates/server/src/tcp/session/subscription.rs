//! A session's subscriptions, and the logs that they read.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use dunlin::CursorFuture;
use dunlin::topic::SubscriberProgress;
use dunlin::topic::{
    Cursor, Filter, Log, MemoryBudget, MemoryBudgetError, MemoryCharge, NewLogs, Pattern, Position, Snapshot,
    SubscribeOptions,
};
use dunlin::wire::SNAPSHOT_HEAD_BYTES;
use hashbrown::HashMap;

use super::plan::BATCH_BYTES_MAX;

/// A subscription of a client that uses Dunlin's own protocol.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) pattern: Pattern,
    pub(super) options: SubscribeOptions,
    pub(super) channels: Vec<u32>,
    /// Total number of bytes for which the client has granted credit.
    pub(super) granted: u64,
    pub(super) sent: u64,
    /// Channels that have records but wait for credit.
    pub(super) starved: Vec<u32>,
    /// Receives the logs of topics that are created later and match the subscription.
    pub(super) newcomers: Option<Arc<NewLogs>>,
    /// Logs that were not announced and have no channel yet.
    pub(super) unannounced: VecDeque<(Arc<Log>, Option<Filter>)>,
    /// The client's positions at the end of its last connection, if the subscription is resumed.
    pub(super) resumed: Option<ResumePositions>,
    /// Number of logs announced so far; `None` once all existing logs were announced.
    pub(super) announced_logs: Option<u32>,
    pub(super) _charge: MemoryCharge,
}

#[derive(Debug)]
pub(super) struct PendingChannel {
    pub(super) subscription: u32,
    pub(super) cursor: CursorFuture,
    pub(super) charge: MemoryCharge,
}

/// Positions by topic and partition, with the memory that is charged for them.
#[derive(Debug)]
pub(super) struct ResumePositions {
    pub(super) positions: HashMap<(String, u16), Position>,
    charge: MemoryCharge,
    bytes: usize,
}

/// Approximate memory that a position takes, bytes: an entry of a half-full table, and the allocation of its text.
const POSITION_BYTES: usize = 128;

impl ResumePositions {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> ResumePositions {
        ResumePositions { positions: HashMap::new(), charge: MemoryCharge::none(budget), bytes: 0 }
    }

    pub(super) fn add(
        &mut self,
        topic: &str,
        partition: u16,
        position: Position,
    ) -> Result<(), MemoryBudgetError> {
        self.charge.grow_to(self.bytes + POSITION_BYTES + topic.len())?;
        self.bytes += POSITION_BYTES + topic.len();
        self.positions.insert((topic.to_owned(), partition), position);
        Ok(())
    }
}

/// A channel of a subscription: what the subscription has read and sent from one log.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) subscription: u32,
    pub(super) cursor: Cursor,
    /// The client's position when it has read everything that was sent.
    pub(super) reported: Position,
    /// Progress of the channel, shown to operators.
    pub(super) progress: Arc<SubscriberProgress>,
    /// Bytes that were sent in addition to the channel's share. The channel skips writes until they are compensated.
    pub(super) debt: Cell<usize>,
    /// Whether the socket did not take all of the channel's part of the last write.
    pub(super) stopped: bool,
    /// Whether records of the channel are in the write that is being built.
    pub(super) is_selected: bool,
    /// Whether the channel has sent a record since it last ran out of records.
    pub(super) sent: bool,
    /// Whether the next heartbeat has the channel's position.
    pub(super) touched: bool,
    /// The state that is being sent, if one is.
    pub(super) sending: Option<SnapshotTransfer>,
    /// With conflation: the position up to which records were sent that the client has not consumed yet.
    pub(super) in_flight: Option<Position>,
    pub(super) _charge: MemoryCharge,
}

/// A state that is being sent, and the number of its bytes that were sent.
#[derive(Debug)]
pub(super) struct SnapshotTransfer {
    pub(super) snapshot: Snapshot,
    pub(super) offset: usize,
}

impl SnapshotTransfer {
    /// Number of bytes of the messages that are still to be sent.
    pub(super) fn message_bytes(&self) -> u64 {
        let rest = self.snapshot.bytes.len() - self.offset;
        let parts = rest.div_ceil(BATCH_BYTES_MAX).max(1);
        (parts * SNAPSHOT_HEAD_BYTES + rest.next_multiple_of(8)) as u64
    }
}

impl Subscription {
    pub(super) fn may_send(&self) -> bool {
        self.sent < self.granted
    }
}

impl Channel {
    /// The position of the last record that was sent or skipped.
    pub(super) fn read_through(&self) -> Position {
        self.cursor.read_through()
    }

    /// Stores that the client knows the channel's position.
    pub(super) fn mark_all_reported(&mut self) {
        self.reported = self.read_through();
        self.progress.set_position(self.reported);
        self.in_flight = self.cursor.is_conflated().then_some(self.reported);
    }

    /// Starts to send a state. Returns the number of bytes of all its messages.
    pub(super) fn begin_sending(&mut self, snapshot: Snapshot) -> u64 {
        self.sending.insert(SnapshotTransfer { snapshot, offset: 0 }).message_bytes()
    }

    /// Treats records that are dropped on purpose (for tests) as sent, without a notice to the client. Returns whether
    /// there were any.
    pub(super) fn skip_lost(&mut self) -> bool {
        let read_seq = self.cursor.prev_seq();
        let has_lost = self.reported.epoch == self.cursor.next().epoch && read_seq > self.reported.seq;
        if has_lost {
            self.reported.seq = read_seq;
        }
        has_lost
    }

    /// Counts more bytes of the state as sent.
    pub(super) fn record_sent_state(&mut self, bytes: usize) {
        let Some(sending) = &mut self.sending else { return };
        sending.offset += bytes;
        if sending.offset == sending.snapshot.bytes.len() {
            self.sending = None;
            self.mark_all_reported();
        }
    }

    /// Whether the client knows the channel's position.
    pub(super) fn is_all_reported(&self) -> bool {
        self.read_through() == self.reported
    }
}
