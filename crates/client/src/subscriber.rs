//! The client's subscriber, which reads the records that a node sends.
//!
//! A subscriber reads frames directly from the chunk into which they were received. Only the frames of small batches
//! are copied first.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin_topic::{
    Event, Frame, LogName, Notice, Position, Record, Resync, Subscribe, SubscribeError, WaitStrategy,
};
use dunlin_wire::FromClient;

use crate::client::SharedClient;
use crate::disconnect_reason::DisconnectReason;
use crate::drive::WaitOutcome;
use crate::follow::lock;
use crate::inbox::{BatchItem, InboxBatch, InboxItem, SubscriberInbox};
use crate::link::PumpOutcome;
use crate::pending_request::deadline;

/// A position in one log up to which a subscriber has consumed all records.
pub type ConsumedPosition = (Arc<LogName>, Position);

/// A subscriber, which reads the records and notices of one or more logs of a node.
#[derive(Debug)]
pub struct Subscriber {
    shared: Arc<SharedClient>,
    inbox: Arc<SubscriberInbox>,
    number: u32,
    wait: WaitStrategy,
    /// The received items that the subscriber has taken from the inbox.
    batch: InboxBatch,
    /// The index in `batch` of the item after the current one.
    next: usize,
    /// How many events of the current item were not read yet.
    events_left: u32,
    /// The index at which the next frame of the current item begins.
    at: usize,
    /// The sequence number of the record in the next frame.
    seq: u64,
    /// The sequence number of the record before the one in the next frame.
    prev_seq: u64,
    /// The credit of the items that the subscriber has read, except the part that was already returned to the node.
    unreported_credit: u64,
    return_at: u64,
    /// Consumed positions that were not reported to the node yet; `None` if they need not be reported. Only reliable
    /// topics and conflation need them.
    consumed: Option<Vec<ConsumedPosition>>,
    /// Since when the subscriber has polled the socket in vain; `None` after a wait.
    polls_since: Option<Instant>,
}

impl Subscriber {
    pub(crate) fn new(
        shared: Arc<SharedClient>,
        inbox: Arc<SubscriberInbox>,
        number: u32,
        wait: WaitStrategy,
        reports_consumed: bool,
    ) -> Subscriber {
        let return_at = shared.limits.credit_bytes as u64 / 2;
        Subscriber {
            shared,
            inbox,
            number,
            wait,
            batch: InboxBatch::default(),
            next: 0,
            events_left: 0,
            at: 0,
            seq: 0,
            prev_seq: 0,
            unreported_credit: 0,
            return_at,
            consumed: reports_consumed.then(Vec::new),
            polls_since: None,
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn shared(&self) -> &Arc<SharedClient> {
        &self.shared
    }

    /// Returns the current item of the batch, and the buffer that contains its frames.
    #[inline(always)]
    pub(crate) fn current_item(&self) -> (&InboxItem, &[u8]) {
        let item = &self.batch.items[self.next - 1];
        let bytes = match item {
            InboxItem::Batch(BatchItem { chunk: Some(chunk), .. }) => &chunk[..],
            _ => &self.batch.copied[..],
        };
        (item, bytes)
    }

    /// Like [`current_item`](Self::current_item), but returns `None` if there is no current item.
    pub(crate) fn current_item_if_any(&self) -> Option<(&InboxItem, &[u8])> {
        (self.next > 0 && self.next <= self.batch.items.len()).then(|| self.current_item())
    }

    /// Reports the records of the current batch up to `last` as consumed. The subscriber may have read only a part of
    /// the batch.
    pub(crate) fn consume_through(&mut self, last: ConsumedPosition) {
        if let Some(consumed) = &mut self.consumed {
            consumed.retain(|(log, _)| !Arc::ptr_eq(log, &last.0));
            consumed.push(last);
        }
        self.report_consumed();
    }

    /// Moves past the next frame, which has `bytes` bytes. Returns the index at which this frame begins.
    pub(crate) fn step(&mut self, bytes: usize) -> usize {
        let at = self.at;
        self.at += bytes;
        self.prev_seq = self.seq;
        self.seq += 1;
        self.events_left -= 1;
        at
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Moves to the next item of the batch, or takes a new batch from the inbox. If there is none, and `polls_socket`
    /// is set, reads the socket and tries again. Returns whether there is an item.
    #[inline]
    fn advance(&mut self, polls_socket: bool) -> Result<bool, SubscribeError> {
        loop {
            if self.next > 0 {
                self.finish_item();
            }
            if let Some(item) = self.batch.items.get(self.next) {
                self.next += 1;
                (self.events_left, self.at, self.seq, self.prev_seq) = match item {
                    InboxItem::Batch(batch) => (batch.count, batch.start, batch.first_seq, batch.prev_seq),
                    InboxItem::Notice(..) => (1, 0, 0, 0),
                };
                return Ok(true);
            }
            self.batch.clear();
            self.next = 0;
            if self.inbox.take(&mut self.batch)? {
                continue;
            }
            self.report_consumed();
            if self.inbox.needs_credit_report() {
                self.return_credit();
            }
            if !polls_socket || !self.poll_socket()? {
                return Ok(false);
            }
        }
    }

    /// Adds the credit of the current item, which was read, to the credit that is returned to the node.
    #[inline]
    fn finish_item(&mut self) {
        let Some(item) = self.batch.items.get(self.next - 1) else { return };
        let consumed_position = match item {
            InboxItem::Batch(batch) => {
                self.unreported_credit += batch.cost;
                let seq = batch.first_seq + u64::from(batch.count) - 1;
                Some((&batch.log, Position { epoch: batch.epoch, seq }))
            }
            InboxItem::Notice(notice, cost) => {
                self.unreported_credit += cost;
                match notice {
                    Notice::Snapshot(snapshot) => {
                        self.inbox.record_snapshot_read(*cost);
                        Some((&snapshot.log, snapshot.position))
                    }
                    _ => None,
                }
            }
        };
        if let (Some(consumed), Some((log, last))) = (&mut self.consumed, consumed_position) {
            match consumed.iter_mut().find(|(other, _)| Arc::ptr_eq(other, log)) {
                Some((_, at)) => *at = last,
                None => consumed.push((Arc::clone(log), last)),
            }
        }
        if self.unreported_credit >= self.return_at {
            self.return_credit();
        }
    }

    /// Reports consumed records to the node, if there are any. Publishers of reliable topics wait for these reports.
    #[inline]
    fn report_consumed(&mut self) {
        if self.consumed.as_ref().is_some_and(|consumed| !consumed.is_empty()) {
            self.return_credit();
        }
    }

    /// Gives the node back the credit of the items that were read, and reports the consumed positions.
    #[cold]
    fn return_credit(&mut self) {
        let total = self.inbox.consume(std::mem::take(&mut self.unreported_credit));
        let positions = self.consumed.as_mut().map(std::mem::take).unwrap_or_default();
        let session = lock(&self.shared.session);
        let credit = session.encode_credit(self.number, total, &positions);
        self.shared.outbox.write(&credit);
    }

    /// Reports records as consumed on behalf of another subscriber, for which this one reads them.
    pub(crate) fn report_consumed_for(&mut self, consumed: &[ConsumedPosition]) {
        let total = self.inbox.consume(std::mem::take(&mut self.unreported_credit));
        let session = lock(&self.shared.session);
        let credit = session.encode_credit(self.number, total, consumed);
        self.shared.outbox.write(&credit);
    }

    /// Asks the node to end the subscription. Records that the node has sent before still arrive.
    pub(crate) fn send_unsubscribe(&self) {
        let mut out = Vec::new();
        FromClient::Unsubscribe { subscription: self.number }.encode(&mut out);
        self.shared.outbox.write(&out);
    }

    /// Reads the socket without waiting. Returns whether the inbox may have something new.
    fn poll_socket(&mut self) -> Result<bool, SubscribeError> {
        match self.shared.try_pump() {
            PumpOutcome::Received => {
                self.polls_since = None;
                Ok(true)
            }
            PumpOutcome::Quiet => {
                self.polls_since.get_or_insert_with(Instant::now);
                Ok(self.inbox.has_pending())
            }
            PumpOutcome::Disconnected(why, since) => self.check_disconnected(why, since),
            PumpOutcome::Closed => Err(SubscribeError::Closed),
        }
    }

    /// Fails if the node has refused the connection, or if the subscriber has polled for
    /// [`Link::silence_max`](crate::link::Link::silence_max) without one. Without this check, a caller that only polls
    /// would not notice a lost connection.
    #[cold]
    fn check_disconnected(&mut self, why: DisconnectReason, since: Instant) -> Result<bool, SubscribeError> {
        let polls_since = *self.polls_since.get_or_insert_with(Instant::now);
        if !matches!(why, DisconnectReason::Refused(_)) {
            let Ok(link) = self.shared.link.try_lock() else { return Ok(false) };
            if since.max(polls_since).elapsed() < link.silence_max(&self.shared.limits) {
                return Ok(false);
            }
        }
        self.polls_since = None;
        Err(SubscribeError::Connection(why.to_string()))
    }
}

impl Subscribe for Subscriber {
    #[inline(always)]
    fn ready(&mut self) -> Result<bool, SubscribeError> {
        if self.events_left > 0 { Ok(true) } else { self.advance(true) }
    }

    #[inline]
    fn take(&mut self) -> Event<'_> {
        assert!(self.events_left > 0, "take without an event: call ready first");
        let (at, seq, prev_seq) = (self.at, self.seq, self.prev_seq);
        let item_bytes = match self.current_item() {
            (InboxItem::Batch(_), bytes) => {
                Frame::split(&bytes[at..]).map_or(0, |(_, frame_bytes)| frame_bytes)
            }
            (InboxItem::Notice(..), _) => 0,
        };
        self.step(item_bytes);
        match self.current_item() {
            (InboxItem::Notice(notice, _), _) => Event::Notice(notice.clone()),
            (InboxItem::Batch(batch), bytes) => {
                let (frame, _) =
                    Frame::split(&bytes[at..]).expect("batches are checked when they are received");
                let position = Position { epoch: batch.epoch, seq };
                Event::Record(Record { position, prev_seq, frame, log: &batch.log })
            }
        }
    }

    #[inline]
    fn drain(&mut self, max: usize, mut each: impl FnMut(Event<'_>)) -> Result<usize, SubscribeError> {
        let mut count = 0;
        while count < max && self.ready()? {
            let (at, seq, events) =
                (self.at, self.seq, self.events_left.min((max - count).try_into().unwrap_or(u32::MAX)));
            let mut bytes_read = 0;
            let mut prev_seq = self.prev_seq;
            match self.current_item() {
                (InboxItem::Notice(notice, _), _) => each(Event::Notice(notice.clone())),
                (InboxItem::Batch(batch), bytes) => {
                    let mut rest = &bytes[at..batch.end];
                    for seq in seq..seq + u64::from(events) {
                        let (frame, frame_bytes) =
                            Frame::split(rest).expect("batches are checked when they are received");
                        rest = &rest[frame_bytes..];
                        let position = Position { epoch: batch.epoch, seq };
                        each(Event::Record(Record { position, prev_seq, frame, log: &batch.log }));
                        prev_seq = seq;
                    }
                    bytes_read = batch.end - at - rest.len();
                }
            }
            self.at += bytes_read;
            self.seq += u64::from(events);
            self.prev_seq = prev_seq;
            self.events_left -= events;
            count += events as usize;
        }
        Ok(count)
    }

    fn resync(&mut self, log: &LogName, resync: Resync) -> Result<(), SubscribeError> {
        let mut session = lock(&self.shared.session);
        let message = session.resync(self.number, log, resync);
        self.shared.outbox.write(&message);
        Ok(())
    }

    /// Does not read the socket before the wait, because the wait itself does.
    #[inline]
    fn next(&mut self) -> Result<Event<'_>, SubscribeError> {
        while !self.has_received()? {
            self.wait(None)?;
        }
        Ok(self.take())
    }

    fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Event<'_>>, SubscribeError> {
        Ok(if self.receive_within(timeout)? { Some(self.take()) } else { None })
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        if self.events_left > 0 || self.next < self.batch.items.len() {
            return Ok(true);
        }
        self.release_batch();
        let until = timeout.map(deadline);
        let inbox = &self.inbox;
        match self.shared.wait_until(&inbox.waker, self.wait, until, || inbox.has_pending()) {
            WaitOutcome::Done => Ok(true),
            WaitOutcome::TimedOut => Ok(false),
            WaitOutcome::Disconnected(why) => Err(SubscribeError::Connection(why.to_string())),
        }
    }

    #[cfg(feature = "tokio")]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>> {
        if self.events_left > 0 || self.next < self.batch.items.len() {
            return Poll::Ready(Ok(()));
        }
        self.release_batch();
        let inbox = &self.inbox;
        match self.shared.poll_until(&inbox.waker, self.number.into(), cx, || inbox.has_pending()) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(WaitOutcome::Done | WaitOutcome::TimedOut) => Poll::Ready(Ok(())),
            Poll::Ready(WaitOutcome::Disconnected(why)) => {
                Poll::Ready(Err(SubscribeError::Connection(why.to_string())))
            }
        }
    }

    #[cfg(not(feature = "tokio"))]
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>> {
        Poll::Ready(self.wait(None).map(drop))
    }
}

impl Subscriber {
    /// The reason why the node refused the subscription, if it did.
    pub fn refused(&self) -> Option<SubscribeError> {
        self.inbox.is_subscribed().err()
    }

    /// Whether the node has accepted the subscription. Fails if the node refused it.
    pub(crate) fn is_subscribed(&self) -> Result<bool, SubscribeError> {
        self.inbox.is_subscribed()
    }

    /// Returns the position in each log at which a subscription of
    /// [`subscribe_nowait`](crate::Client::subscribe_nowait) began. Returns `None` until the node has responded. Leaves
    /// out the logs of topics that are created later.
    pub fn start_positions(&self) -> Option<Vec<ConsumedPosition>> {
        self.inbox.take_start_positions()
    }

    /// Returns, for each log, the position up to which the client has received all records.
    ///
    /// Records that the node does not deliver, because they have expired or do not match the pattern, count as
    /// received. Events up to the position may be received, but not read yet. The list does not contain logs that the
    /// node has not announced on the present connection.
    pub fn received_positions(&self) -> Vec<(Arc<LogName>, Position)> {
        lock(&self.shared.session).received_positions(self.number)
    }

    /// Whether an event can be read without reading the socket.
    #[inline]
    pub(crate) fn has_received(&mut self) -> Result<bool, SubscribeError> {
        if self.events_left > 0 { Ok(true) } else { self.advance(false) }
    }

    /// Waits at most `timeout` until an event can be read. Returns whether there is one.
    #[inline]
    pub(crate) fn receive_within(&mut self, timeout: Duration) -> Result<bool, SubscribeError> {
        let mut until = None;
        while !self.has_received()? {
            let until = *until.get_or_insert_with(|| deadline(timeout));
            let remaining = until.saturating_duration_since(Instant::now());
            // A wait may also end because the client has credit to return to the node. If so, wait again.
            if !self.wait(Some(remaining))? || remaining.is_zero() {
                return self.has_received();
            }
        }
        Ok(true)
    }

    /// Waits like [`wait`](Subscribe::wait), at most `timeout`, but also ends when `is_done` returns `true`.
    pub(crate) fn wait_or(
        &mut self,
        timeout: Duration,
        is_done: impl Fn() -> bool,
    ) -> Result<bool, SubscribeError> {
        self.release_batch();
        let inbox = &self.inbox;
        let until = Some(deadline(timeout));
        let done = || inbox.has_pending() || is_done();
        match self.shared.wait_until(&inbox.waker, self.wait, until, done) {
            WaitOutcome::Done => Ok(true),
            WaitOutcome::TimedOut => Ok(false),
            WaitOutcome::Disconnected(why) => Err(SubscribeError::Connection(why.to_string())),
        }
    }

    /// Releases the chunks of the current batch before a wait, so that the client can read into them again.
    #[inline]
    fn release_batch(&mut self) {
        self.polls_since = None;
        if self.next > 0 {
            self.finish_item();
            self.batch.clear();
            self.next = 0;
        }
        self.report_consumed();
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut session = lock(&self.shared.session);
        session.remove_subscription(self.number);
        self.send_unsubscribe();
    }
}
