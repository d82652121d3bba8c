//! The inbox of a subscription: received records and notices that the subscriber has not taken yet. The thread that
//! reads the socket fills the inbox. The subscriber takes all contents of the inbox at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_topic::{LogName, Notice, Position, SubscribeError};

use crate::follow::HandleWaker;
use crate::limits::{PIN_BYTES_MIN, PINNED_UNREAD_BYTES_MAX};
use crate::session::ConnectionError;

/// Received records and notices, in their order of arrival.
#[derive(Debug, Default)]
pub(crate) struct InboxBatch {
    pub(crate) items: Vec<InboxItem>,
    /// Copies of the frames of small batches. The chunk into which such a batch was read is not kept.
    pub(crate) copied: Vec<u8>,
}

/// A batch of records, or a notice, that a subscription has received.
#[derive(Debug)]
pub(crate) enum InboxItem {
    Batch(BatchItem),
    /// A notice, and how many bytes of the subscription's credit it used.
    Notice(Notice, u64),
}

/// Consecutive frames of one log, which arrived together and were checked together.
#[derive(Debug)]
pub(crate) struct BatchItem {
    pub(crate) log: Arc<LogName>,
    pub(crate) epoch: u32,
    /// The sequence number of the last record before this item that the subscription received.
    pub(crate) prev_seq: u64,
    pub(crate) first_seq: u64,
    pub(crate) count: u32,
    /// The chunk that contains the frames; `None` if [`InboxBatch::copied`] contains them.
    pub(crate) chunk: Option<Arc<Vec<u8>>>,
    /// The index of the first byte of the frames.
    pub(crate) start: usize,
    /// The index of the first byte after the frames.
    pub(crate) end: usize,
    /// How many bytes of the subscription's credit the frames used.
    pub(crate) cost: u64,
}

impl InboxBatch {
    /// Empties the batch and releases its chunks.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.copied.clear();
        self.copied.shrink_to(PINNED_UNREAD_BYTES_MAX);
    }
}

/// The inbox of a subscription. The subscriber and the thread that reads the socket share it.
#[derive(Debug)]
pub(crate) struct SubscriberInbox {
    pub(crate) waker: HandleWaker,
    unread_bytes_max: u64,
    /// If at least this many bytes of credit were refunded, the client reports them to the node, even if the subscriber
    /// reads nothing.
    refund_max: u64,
    state: Mutex<InboxState>,
}

/// The part of an inbox that its lock protects.
#[derive(Debug, Default)]
pub(crate) struct InboxState {
    batch: InboxBatch,
    /// How many bytes of credit all items in `batch` used.
    unread_bytes: usize,
    end_error: Option<SubscribeError>,
    /// Whether the node has announced all logs of the subscription.
    is_subscribed: bool,
    /// The position in each log at which the subscription began, unless the subscriber has taken it.
    start_positions: Vec<(Arc<LogName>, Position)>,
    /// How many bytes the subscription has received since it began, over all connections.
    received: u64,
    /// How many of the received bytes were consumed. A message that gives the subscriber no event counts as consumed at
    /// once.
    consumed: u64,
    /// The size in bytes of the messages without an event that have arrived since the client last reported credit to
    /// the node.
    refunded: u64,
    /// The size of the snapshots of states that were not taken yet. It may exceed the credit, because a node sends each
    /// state as a whole.
    unread_state_bytes: u64,
}

impl SubscriberInbox {
    /// Creates an inbox for at most `unread_bytes_max` unread bytes, besides snapshots of states.
    ///
    /// A message that gives the subscriber no event returns its credit at once. As soon as such messages have returned
    /// `refund_max` bytes, the client reports these bytes to the node. Otherwise, the node could wait for credit from a
    /// subscriber that has nothing to read.
    pub(crate) fn new(unread_bytes_max: u64, refund_max: u64) -> SubscriberInbox {
        SubscriberInbox {
            waker: HandleWaker::default(),
            unread_bytes_max,
            refund_max,
            state: Mutex::default(),
        }
    }

    /// Fails if the node has sent more bytes than the credit of the subscription allows.
    #[inline]
    pub(crate) fn check_credit(&self) -> Result<(), ConnectionError> {
        let sent = {
            let state = self.lock();
            (state.received - state.consumed).saturating_sub(state.unread_state_bytes)
        };
        if sent <= self.unread_bytes_max {
            return Ok(());
        }
        Err(ConnectionError::Credit { sent, allowed: self.unread_bytes_max })
    }

    /// Moves all items into `batch`, which must be empty, and returns `true`. If there are no items, returns `false`,
    /// or an error if the subscription has ended.
    pub(crate) fn take(&self, batch: &mut InboxBatch) -> Result<bool, SubscribeError> {
        let mut state = self.lock();
        if state.batch.items.is_empty() {
            return state.end_error.clone().map_or(Ok(false), Err);
        }
        std::mem::swap(&mut state.batch, batch);
        state.unread_bytes = 0;
        Ok(true)
    }

    pub(crate) fn has_pending(&self) -> bool {
        let state = self.lock();
        !state.batch.items.is_empty() || state.end_error.is_some() || state.refunded >= self.refund_max
    }

    /// Whether at least `refund_max` bytes of credit were refunded. If so, the client has to report them without
    /// waiting for the subscriber.
    pub(crate) fn needs_credit_report(&self) -> bool {
        self.lock().refunded >= self.refund_max
    }

    /// Adds the batch `item`, whose frames are `chunk[item.start..item.end]`.
    pub(crate) fn push_batch(&self, mut item: BatchItem, chunk: &Arc<Vec<u8>>) {
        let mut state = self.lock();
        let bytes = item.end - item.start;
        if bytes >= PIN_BYTES_MIN && state.unread_bytes < PINNED_UNREAD_BYTES_MAX {
            item.chunk = Some(Arc::clone(chunk));
        } else {
            let start = state.batch.copied.len();
            state.batch.copied.extend_from_slice(&chunk[item.start..item.end]);
            (item.start, item.end) = (start, start + bytes);
        }
        state.unread_bytes += bytes;
        state.received += item.cost;
        state.batch.items.push(InboxItem::Batch(item));
        drop(state);
        self.waker.wake();
    }

    pub(crate) fn push_notice(&self, notice: Notice, cost: u64) {
        let mut state = self.lock();
        state.received += cost;
        if let Notice::Snapshot(_) = &notice {
            state.unread_state_bytes += cost;
        }
        state.batch.items.push(InboxItem::Notice(notice, cost));
        drop(state);
        self.waker.wake();
    }

    pub(crate) fn end(&self, why: SubscribeError) {
        self.lock().end_error.get_or_insert(why);
        self.waker.wake();
    }

    pub(crate) fn set_subscribed(&self) {
        self.lock().is_subscribed = true;
        self.waker.wake();
    }

    /// Whether the node has accepted the subscription. Fails if the node refused it.
    pub(crate) fn is_subscribed(&self) -> Result<bool, SubscribeError> {
        let state = self.lock();
        match (&state.end_error, state.is_subscribed) {
            (_, true) => Ok(true),
            (Some(why), false) => Err(why.clone()),
            (None, false) => Ok(false),
        }
    }

    /// Adds the position at which the subscription begins in a log. Leaves out logs that the node announces after it has
    /// accepted the subscription: their number has no limit, and many programs never take the positions. A log of which
    /// a group's member becomes a member `again` has a new position.
    pub(crate) fn add_start_position(&self, log: &Arc<LogName>, at: Position, again: bool) {
        let mut state = self.lock();
        if again {
            state.start_positions.retain(|(known, _)| known != log);
        }
        if again || !state.is_subscribed {
            state.start_positions.push((Arc::clone(log), at));
        }
    }

    /// Forgets the start positions if the connection was lost before the node has accepted the subscription: the next
    /// connection announces all logs again.
    pub(crate) fn forget_unaccepted_starts(&self) {
        let mut state = self.lock();
        if !state.is_subscribed {
            state.start_positions.clear();
        }
    }

    /// Takes the position in each log at which the subscription began; `None` until the node has accepted the
    /// subscription. The positions stay available after the subscription has ended: its end may arrive together with
    /// its beginning.
    pub(crate) fn take_start_positions(&self) -> Option<Vec<(Arc<LogName>, Position)>> {
        let mut state = self.lock();
        state.is_subscribed.then(|| std::mem::take(&mut state.start_positions))
    }

    pub(crate) fn received(&self) -> u64 {
        self.lock().received
    }

    /// The number of received bytes that the subscriber has not consumed yet.
    pub(crate) fn unread(&self) -> u64 {
        let state = self.lock();
        state.received - state.consumed
    }

    /// Returns the credit of a message that gives the subscriber no event. The next credit report to the node includes
    /// it.
    pub(crate) fn refund(&self, cost: u64) {
        let mut state = self.lock();
        state.received += cost;
        state.consumed += cost;
        state.refunded += cost;
        let needs_report = state.refunded >= self.refund_max;
        drop(state);
        if needs_report {
            self.waker.wake();
        }
    }

    pub(crate) fn record_snapshot_read(&self, cost: u64) {
        let mut state = self.lock();
        state.unread_state_bytes = state.unread_state_bytes.saturating_sub(cost);
    }

    /// Counts `bytes` more bytes as consumed. Returns how many bytes were consumed in total.
    pub(crate) fn consume(&self, bytes: u64) -> u64 {
        let mut state = self.lock();
        state.consumed += bytes;
        state.refunded = 0;
        state.consumed
    }

    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
