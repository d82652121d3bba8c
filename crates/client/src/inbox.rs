//! The received records and notices of one subscription that its subscriber has not read yet. The thread that reads the
//! socket fills the inbox; the subscriber takes a whole batch at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_topic::{LogName, Notice, SubscribeError};

use crate::follow::HandleWaker;
use crate::limits::{PIN_BYTES_MIN, PINNED_UNREAD_BYTES_MAX};
use crate::session::ConnectionError;

/// Records and notices in their order of arrival.
#[derive(Debug, Default)]
pub(crate) struct InboxBatch {
    pub(crate) items: Vec<InboxItem>,
    /// The frames of small batches, copied here so that their chunk is not kept.
    pub(crate) copied: Vec<u8>,
}

/// An item of a subscription: a batch of records, or a notice.
#[derive(Debug)]
pub(crate) enum InboxItem {
    Batch(BatchItem),
    /// A notice, and the bytes of credit that the node used for it.
    Notice(Notice, u64),
}

/// Consecutive frames of one log, which were received and checked together.
#[derive(Debug)]
pub(crate) struct BatchItem {
    pub(crate) log: Arc<LogName>,
    pub(crate) epoch: u32,
    /// The sequence number of the record that the subscription received before the first record of this item.
    pub(crate) prev_seq: u64,
    pub(crate) first_seq: u64,
    pub(crate) count: u32,
    /// The chunk that holds the frames; `None` if they are in [`InboxBatch::copied`].
    pub(crate) chunk: Option<Arc<Vec<u8>>>,
    /// The index at which the frames begin.
    pub(crate) start: usize,
    /// The index after the last frame.
    pub(crate) end: usize,
    /// The credit, in bytes, that the node used for the frames.
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

/// The received items of a subscription, shared by the subscriber and the thread that reads the socket.
#[derive(Debug)]
pub(crate) struct SubscriberInbox {
    pub(crate) waker: HandleWaker,
    unread_bytes_max: u64,
    /// When at least this many bytes of credit are refunded, the client reports them to the node even if the subscriber
    /// reads nothing.
    refund_max: u64,
    state: Mutex<InboxState>,
}

/// The part of an inbox that its lock protects.
#[derive(Debug, Default)]
pub(crate) struct InboxState {
    batch: InboxBatch,
    /// The credit that the node used for all items in `batch`, in bytes.
    unread_bytes: usize,
    end_error: Option<SubscribeError>,
    /// Whether the node has announced all existing logs.
    is_subscribed: bool,
    /// The number of bytes received since the subscription began, over all connections.
    received: u64,
    /// The number of consumed bytes. Messages that give the subscriber no event count as consumed at once.
    consumed: u64,
    /// The number of bytes of messages without an event since the client last reported credit to the node.
    refunded: u64,
    /// The size of unread snapshots of states. It may exceed the credit, because a node sends each state completely.
    unread_state_bytes: u64,
}

impl SubscriberInbox {
    /// Creates an inbox for at most `unread_bytes_max` unread bytes, besides snapshots of states. Messages without an
    /// event return their credit at once. When at least `refund_max` bytes are returned in this way, the client reports
    /// them to the node. Otherwise, a node could wait for credit from a subscriber that has nothing to read.
    pub(crate) fn new(unread_bytes_max: u64, refund_max: u64) -> SubscriberInbox {
        SubscriberInbox {
            waker: HandleWaker::default(),
            unread_bytes_max,
            refund_max,
            state: Mutex::default(),
        }
    }

    /// Fails if the node sent more bytes than the subscription's credit allows.
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

    /// Moves all items into `batch`, which must be empty. Returns `false` if there is no item. Fails if the
    /// subscription has ended and no item is left.
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

    /// Whether at least `refund_max` bytes were refunded, so that the client has to report them before the subscriber
    /// reads.
    pub(crate) fn needs_credit_report(&self) -> bool {
        self.lock().refunded >= self.refund_max
    }

    /// Adds a batch whose frames are `chunk[item.start..item.end]`.
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

    /// Whether the node has responded to the subscription. Fails if the node refused it.
    pub(crate) fn is_subscribed(&self) -> Result<bool, SubscribeError> {
        let state = self.lock();
        match (&state.end_error, state.is_subscribed) {
            (_, true) => Ok(true),
            (Some(why), false) => Err(why.clone()),
            (None, false) => Ok(false),
        }
    }

    pub(crate) fn received(&self) -> u64 {
        self.lock().received
    }

    /// The number of received bytes that the subscriber has not consumed yet.
    pub(crate) fn unread(&self) -> u64 {
        let state = self.lock();
        state.received - state.consumed
    }

    /// Refunds the credit of a message that gives the subscriber no event. The next credit report includes it.
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

    /// Counts `bytes` more consumed bytes. Returns the number of all consumed bytes.
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
