//! Defines a session's subscriptions, and the channels over which they send the records of logs.

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use dunlin::topic::SubscriberProgress;
use dunlin::topic::{
    Cursor, Filter, Log, MemoryBudget, MemoryBudgetError, MemoryCharge, NewLogs, Pattern, Position, Snapshot,
    SubscribeOptions,
};
use dunlin::wire::{PLACEMENT, SNAPSHOT_HEAD_BYTES};
use dunlin::{CursorFuture, LogSearch, Refused};
use hashbrown::HashMap;

use super::plan::BATCH_BYTES_MAX;

/// A subscription of a client that uses Dunlin's own protocol.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) pattern: Pattern,
    pub(super) options: SubscribeOptions,
    pub(super) channels: Vec<u32>,
    /// Total credit that the client has granted so far, bytes.
    pub(super) granted: u64,
    pub(super) sent: u64,
    /// Channels that have something to send, but must wait for credit.
    pub(super) starved: Vec<u32>,
    /// Receives the logs of matching topics that are created after the subscription started.
    pub(super) newcomers: Option<Arc<NewLogs>>,
    /// Logs that were not announced to the client yet, and therefore have no channel.
    pub(super) unannounced: VecDeque<(Arc<Log>, Option<Filter>)>,
    /// The search for further logs; `None` if all existing logs were found.
    pub(super) search: Option<LogSearch>,
    /// The numbers of logs in `unannounced` that the user could not read before. They are read from the next record.
    pub(super) newly_readable: HashSet<u64>,
    /// If the subscription resumes, the positions that the client had reached on its previous connection.
    pub(super) resumed: Option<ResumePositions>,
    /// Number of logs that were announced so far; `None` after all logs that existed at the start were announced.
    pub(super) announced_logs: Option<u32>,
    pub(super) _charge: MemoryCharge,
}

/// A subscription that has ended, but still has channels. The client is informed when the last channel has ended.
#[derive(Debug)]
pub(super) struct EndingSubscription {
    pub(super) number: u32,
    pub(super) subscription: Subscription,
    /// The reason for the end.
    pub(super) refused: Refused,
    /// The largest lag of the channels that have ended, in records.
    pub(super) behind: u64,
}

#[derive(Debug)]
pub(super) struct PendingChannel {
    pub(super) subscription: u32,
    pub(super) log: Arc<Log>,
    pub(super) cursor: CursorFuture,
    pub(super) charge: MemoryCharge,
}

/// A channel that is opened only after the subscription has delivered a deleted topic with the same name to its end.
#[derive(Debug)]
pub(super) struct HeldChannel {
    pub(super) subscription: u32,
    pub(super) cursor: Cursor,
    pub(super) charge: MemoryCharge,
}

/// The positions from which a subscription resumes, by topic and partition, with their memory charge.
#[derive(Debug)]
pub(super) struct ResumePositions {
    pub(super) positions: HashMap<(String, u16), Position>,
    charge: MemoryCharge,
    bytes: usize,
}

/// Approximate memory for one position, bytes: an entry of a hash table that is half full, and the allocation of its
/// text.
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

    /// For the feed of another node's mirror: the topic, and an epoch of its placement.
    pub(super) fn placement(&self) -> Option<(&str, u32)> {
        let mut positions = self.positions.iter();
        let ((topic, _), position) = positions.find(|((_, partition), _)| *partition == PLACEMENT)?;
        Some((topic.as_str(), position.epoch))
    }
}

/// A channel, which sends the records of one log to a subscription.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) subscription: u32,
    pub(super) cursor: Cursor,
    /// The position that the client has after it has received everything that was sent.
    pub(super) reported: Position,
    /// The progress of the channel, which reports show to operators.
    pub(super) progress: Arc<SubscriberProgress>,
    /// Number of bytes by which the channel has exceeded its share of writes. The channel sends nothing until the
    /// shares that it leaves unused have made up for these bytes.
    pub(super) debt: Cell<usize>,
    /// Whether the last write left some of the channel's bytes unsent.
    pub(super) stopped: bool,
    /// Whether the channel is selected for the write that is being planned.
    pub(super) is_selected: bool,
    /// Whether the channel has sent records since it last had none left.
    pub(super) sent: bool,
    /// Whether the next heartbeat contains the channel's position.
    pub(super) touched: bool,
    /// The state that is being sent; `None` if no state is being sent.
    pub(super) sending: Option<SnapshotTransfer>,
    /// With conflation, the last position that was sent; `None` once the client has consumed everything up to this
    /// position.
    pub(super) in_flight: Option<Position>,
    pub(super) _charge: MemoryCharge,
}

/// A state that is being sent, and how many of its bytes were already sent.
#[derive(Debug)]
pub(super) struct SnapshotTransfer {
    pub(super) snapshot: Snapshot,
    pub(super) offset: usize,
}

impl SnapshotTransfer {
    /// Total size of the messages that still have to be sent for this state, bytes.
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
    /// The position of the last record that was sent to the client or skipped.
    pub(super) fn read_through(&self) -> Position {
        self.cursor.read_through()
    }

    /// Remembers that the client knows the channel's present position.
    pub(super) fn mark_all_reported(&mut self) {
        self.reported = self.read_through();
        self.progress.set_position(self.reported);
        self.in_flight = self.cursor.is_conflated().then_some(self.reported);
    }

    /// Starts to send a state. Returns the total size of its messages, bytes.
    pub(super) fn begin_sending(&mut self, snapshot: Snapshot) -> u64 {
        self.sending.insert(SnapshotTransfer { snapshot, offset: 0 }).message_bytes()
    }

    /// For tests that withhold records: counts the withheld records as sent, without informing the client. Returns
    /// whether there were any.
    pub(super) fn skip_lost(&mut self) -> bool {
        let read_seq = self.cursor.prev_seq();
        let has_lost = self.reported.epoch == self.cursor.next().epoch && read_seq > self.reported.seq;
        if has_lost {
            self.reported.seq = read_seq;
        }
        has_lost
    }

    /// Counts `bytes` more bytes of the state as sent.
    pub(super) fn record_sent_state(&mut self, bytes: usize) {
        let Some(sending) = &mut self.sending else { return };
        sending.offset += bytes;
        if sending.offset == sending.snapshot.bytes.len() {
            self.sending = None;
            self.mark_all_reported();
        }
    }

    /// Whether the client knows the channel's present position.
    pub(super) fn is_all_reported(&self) -> bool {
        self.read_through() == self.reported
    }
}
