//! What was received for one subscription and has not been read: filled by whoever reads the
//! socket, emptied by the subscriber, a whole batch at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_topic::{LogName, Notice, SubscribeError};

use crate::follow::Waiting;
use crate::limits::{PIN_BYTES_MIN, PINNED_UNREAD_BYTES_MAX};
use crate::session::Broken;

/// Records and notices in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) items: Vec<Item>,
    /// The bytes of small runs.
    pub(crate) copied: Vec<u8>,
}

#[derive(Debug)]
pub(crate) enum Item {
    Run(RunItem),
    /// A notice, and the credit it took.
    Notice(Notice, u64),
}

/// Frames of one channel, checked.
#[derive(Debug)]
pub(crate) struct RunItem {
    pub(crate) log: Arc<LogName>,
    pub(crate) epoch: u32,
    /// What the first record is told to follow.
    pub(crate) prev_seq: u64,
    pub(crate) first_seq: u64,
    pub(crate) count: u32,
    /// The chunk the frames lie in; `None` for the batch's own bytes.
    pub(crate) chunk: Option<Arc<Vec<u8>>>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The credit it took.
    pub(crate) cost: u64,
}

impl Batch {
    /// Ready for the next fill; chunks are let go.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.copied.clear();
        self.copied.shrink_to(PINNED_UNREAD_BYTES_MAX);
    }
}

/// Shared by the subscriber and whoever reads the socket.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) waiting: Waiting,
    unread_bytes_max: u64,
    /// Credit that came back without having been read, and is worth telling of by itself.
    refund_max: u64,
    state: Mutex<InboxState>,
}

#[derive(Debug, Default)]
pub(crate) struct InboxState {
    batch: Batch,
    /// Bytes in `batch`, as credit counts them.
    unread_bytes: usize,
    /// Why nothing more will come.
    ended: Option<SubscribeError>,
    /// Every log that exists was announced.
    subscribed: bool,
    /// Bytes received since the subscription began, over all connections.
    received: u64,
    /// Those of them that were consumed, or that gave the reader nothing.
    consumed: u64,
    /// Those that gave the reader nothing since the node was last told of its credit.
    refunded: u64,
    /// Bytes of states that were not read yet: a node sends each to its end.
    states: u64,
}

impl Inbox {
    /// An inbox that keeps at most about so many bytes unread. Of `refund_max` bytes that gave the reader nothing the
    /// node is told, though nothing was read: it might be waiting for just that.
    pub(crate) fn new(unread_bytes_max: u64, refund_max: u64) -> Inbox {
        Inbox { waiting: Waiting::default(), unread_bytes_max, refund_max, state: Mutex::default() }
    }

    /// Whether there is room for one more message.
    #[inline]
    pub(crate) fn check_credit(&self) -> Result<(), Broken> {
        let sent = {
            let state = self.lock();
            (state.received - state.consumed).saturating_sub(state.states)
        };
        if sent <= self.unread_bytes_max {
            return Ok(());
        }
        Err(Broken::Credit { sent, allowed: self.unread_bytes_max })
    }

    /// Takes all there is into `batch`, which is empty; the reason when there is nothing and never will be.
    pub(crate) fn take(&self, batch: &mut Batch) -> Result<bool, SubscribeError> {
        let mut state = self.lock();
        if state.batch.items.is_empty() {
            return state.ended.clone().map_or(Ok(false), Err);
        }
        std::mem::swap(&mut state.batch, batch);
        state.unread_bytes = 0;
        Ok(true)
    }

    pub(crate) fn has_news(&self) -> bool {
        let state = self.lock();
        !state.batch.items.is_empty() || state.ended.is_some() || state.refunded >= self.refund_max
    }

    /// Whether the node is to be told of credit that nobody has read for.
    pub(crate) fn owes_credit(&self) -> bool {
        self.lock().refunded >= self.refund_max
    }

    /// Adds a run whose frames are `chunk[item.start..item.end]`.
    pub(crate) fn push_run(&self, mut item: RunItem, chunk: &Arc<Vec<u8>>) {
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
        state.batch.items.push(Item::Run(item));
        drop(state);
        self.waiting.wake();
    }

    pub(crate) fn push_notice(&self, notice: Notice, cost: u64) {
        let mut state = self.lock();
        state.received += cost;
        if let Notice::Snapshot(_) = &notice {
            state.states += cost;
        }
        state.batch.items.push(Item::Notice(notice, cost));
        drop(state);
        self.waiting.wake();
    }

    /// Nothing more will come, and why.
    pub(crate) fn end(&self, why: SubscribeError) {
        self.lock().ended.get_or_insert(why);
        self.waiting.wake();
    }

    pub(crate) fn subscribed(&self) {
        self.lock().subscribed = true;
        self.waiting.wake();
    }

    /// Whether the subscription stands, or why not.
    pub(crate) fn standing(&self) -> Result<bool, SubscribeError> {
        let state = self.lock();
        match (&state.ended, state.subscribed) {
            (_, true) => Ok(true),
            (Some(why), false) => Err(why.clone()),
            (None, false) => Ok(false),
        }
    }

    pub(crate) fn received(&self) -> u64 {
        self.lock().received
    }

    /// Bytes that wait to be consumed.
    pub(crate) fn unread(&self) -> u64 {
        let state = self.lock();
        state.received - state.consumed
    }

    /// A message gave the reader nothing: its credit comes back with the next.
    pub(crate) fn refund(&self, cost: u64) {
        let mut state = self.lock();
        state.received += cost;
        state.consumed += cost;
        state.refunded += cost;
        let owes = state.refunded >= self.refund_max;
        drop(state);
        if owes {
            self.waiting.wake();
        }
    }

    /// A state of so many bytes was read.
    pub(crate) fn state_read(&self, cost: u64) {
        let mut state = self.lock();
        state.states = state.states.saturating_sub(cost);
    }

    /// So many more bytes were consumed; how many that is in all.
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
