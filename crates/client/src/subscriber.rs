//! Subscribers over a connection. Frames are read without a copy from the chunk that the socket filled. The frames of
//! small batches were copied before, and are read from the copy.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin_topic::{
    Event, Frame, LogName, Notice, Position, Record, Resync, Subscribe, SubscribeError, Wait,
};
use dunlin_wire::FromClient;

use crate::client::SharedClient;
use crate::drive::WaitOutcome;
use crate::follow::lock;
use crate::inbox::{BatchItem, InboxBatch, InboxItem, SubscriberInbox};
use crate::link::PumpOutcome;
use crate::pending_request::deadline;
use crate::why::DisconnectReason;

/// The position of a subscriber in one log: the last record that it has consumed.
pub type ConsumedPosition = (Arc<LogName>, Position);

/// Reads the records and notices of one or more logs of a node.
#[derive(Debug)]
pub struct Subscriber {
    shared: Arc<SharedClient>,
    inbox: Arc<SubscriberInbox>,
    number: u32,
    wait: Wait,
    /// The received items from which the subscriber reads at present.
    batch: InboxBatch,
    /// The index in `batch` of the next item.
    next: usize,
    /// The number of events of the current item that were not returned yet.
    left: u32,
    /// The index at which the next frame of the current item begins.
    at: usize,
    /// The sequence number of the next frame.
    seq: u64,
    /// The sequence number of the frame before the next one.
    prev_seq: u64,
    /// The credit of read items that the client has not returned to the node yet.
    spent: u64,
    renew_at: u64,
    /// Consumed positions to report, for reliable topics and conflation; `None` for others.
    consumed: Option<Vec<ConsumedPosition>>,
    away_since: Option<Instant>,
}

impl Subscriber {
    pub(crate) fn new(
        shared: Arc<SharedClient>,
        inbox: Arc<SubscriberInbox>,
        number: u32,
        wait: Wait,
        reports_consumed: bool,
    ) -> Subscriber {
        let renew_at = shared.limits.credit_bytes as u64 / 2;
        Subscriber {
            shared,
            inbox,
            number,
            wait,
            batch: InboxBatch::default(),
            next: 0,
            left: 0,
            at: 0,
            seq: 0,
            prev_seq: 0,
            spent: 0,
            renew_at,
            consumed: reports_consumed.then(Vec::new),
            away_since: None,
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn shared(&self) -> &Arc<SharedClient> {
        &self.shared
    }

    /// The current item.
    #[inline(always)]
    pub(crate) fn item(&self) -> (&InboxItem, &[u8]) {
        let item = &self.batch.items[self.next - 1];
        let bytes = match item {
            InboxItem::Run(BatchItem { chunk: Some(chunk), .. }) => &chunk[..],
            _ => &self.batch.copied[..],
        };
        (item, bytes)
    }

    /// The current item, if there is one.
    pub(crate) fn item_if_any(&self) -> Option<(&InboxItem, &[u8])> {
        (self.next > 0 && self.next <= self.batch.items.len()).then(|| self.item())
    }

    /// Reports the records of a partly read batch as consumed, up to `last`.
    pub(crate) fn consume_through(&mut self, last: ConsumedPosition) {
        if let Some(consumed) = &mut self.consumed {
            consumed.retain(|(log, _)| !Arc::ptr_eq(log, &last.0));
            consumed.push(last);
        }
        self.tell_consumed();
    }

    /// Returns the index at which the next frame begins, and moves behind its `bytes` bytes.
    pub(crate) fn step(&mut self, bytes: usize) -> usize {
        let at = self.at;
        self.at += bytes;
        self.prev_seq = self.seq;
        self.seq += 1;
        self.left -= 1;
        at
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Moves to the next item, or takes the next batch. If no item is available and `look` is set, reads the socket
    /// first.
    #[inline]
    fn advance(&mut self, look: bool) -> Result<bool, SubscribeError> {
        loop {
            if self.next > 0 {
                self.leave_item();
            }
            if let Some(item) = self.batch.items.get(self.next) {
                self.next += 1;
                (self.left, self.at, self.seq, self.prev_seq) = match item {
                    InboxItem::Run(run) => (run.count, run.start, run.first_seq, run.prev_seq),
                    InboxItem::Notice(..) => (1, 0, 0, 0),
                };
                return Ok(true);
            }
            self.batch.clear();
            self.next = 0;
            if self.inbox.take(&mut self.batch)? {
                continue;
            }
            self.tell_consumed();
            if self.inbox.owes_credit() {
                self.renew();
            }
            if !look || !self.look()? {
                return Ok(false);
            }
        }
    }

    /// Counts the credit of the item that was just read, to return it to the node.
    #[inline]
    fn leave_item(&mut self) {
        let Some(item) = self.batch.items.get(self.next - 1) else { return };
        let stands = match item {
            InboxItem::Run(run) => {
                self.spent += run.cost;
                let seq = run.first_seq + u64::from(run.count) - 1;
                Some((&run.log, Position { epoch: run.epoch, seq }))
            }
            InboxItem::Notice(notice, cost) => {
                self.spent += cost;
                match notice {
                    Notice::Snapshot(snapshot) => {
                        self.inbox.state_read(*cost);
                        Some((&snapshot.log, snapshot.position))
                    }
                    _ => None,
                }
            }
        };
        if let (Some(consumed), Some((log, last))) = (&mut self.consumed, stands) {
            match consumed.iter_mut().find(|(other, _)| Arc::ptr_eq(other, log)) {
                Some((_, at)) => *at = last,
                None => consumed.push((Arc::clone(log), last)),
            }
        }
        if self.spent >= self.renew_at {
            self.renew();
        }
    }

    /// Reports consumed records to the node. Publishers of reliable topics wait for these reports.
    #[inline]
    fn tell_consumed(&mut self) {
        if self.consumed.as_ref().is_some_and(|consumed| !consumed.is_empty()) {
            self.renew();
        }
    }

    /// Returns credit to the node.
    #[cold]
    fn renew(&mut self) {
        let total = self.inbox.consume(std::mem::take(&mut self.spent));
        let positions = self.consumed.as_mut().map(std::mem::take).unwrap_or_default();
        let session = lock(&self.shared.session);
        let credit = session.credit(self.number, total, &positions);
        self.shared.outbox.write(&credit);
    }

    /// Reports records as consumed on behalf of another subscriber, for which this one reads them.
    pub(crate) fn say_consumed(&mut self, consumed: &[ConsumedPosition]) {
        let total = self.inbox.consume(std::mem::take(&mut self.spent));
        let credit = lock(&self.shared.session).credit(self.number, total, consumed);
        self.shared.outbox.write(&credit);
    }

    /// Asks the node to end the subscription. Records that the node sent before still arrive.
    pub(crate) fn say_end(&self) {
        let mut out = Vec::new();
        FromClient::Unsubscribe { subscription: self.number }.encode(&mut out);
        self.shared.outbox.write(&out);
    }

    /// Reads the socket. Returns whether anything arrived for any handle of the client.
    fn look(&mut self) -> Result<bool, SubscribeError> {
        match self.shared.poke() {
            PumpOutcome::Heard => {
                self.away_since = None;
                Ok(true)
            }
            PumpOutcome::Quiet => Ok(self.inbox.has_news()),
            PumpOutcome::Disconnected(why, _) => self.away(why),
            PumpOutcome::Closed => Err(SubscribeError::Closed),
        }
    }

    /// Returns an error if there is no connection, also to a caller that never waits.
    #[cold]
    fn away(&mut self, why: DisconnectReason) -> Result<bool, SubscribeError> {
        let since = *self.away_since.get_or_insert_with(Instant::now);
        let patience = Duration::from_secs(1) * self.shared.limits.patience_heartbeats;
        if since.elapsed() < patience && !matches!(why, DisconnectReason::Refused(_)) {
            return Ok(false);
        }
        self.away_since = None;
        Err(SubscribeError::Connection(why.to_string()))
    }
}

impl Subscribe for Subscriber {
    #[inline(always)]
    fn ready(&mut self) -> Result<bool, SubscribeError> {
        if self.left > 0 { Ok(true) } else { self.advance(true) }
    }

    #[inline]
    fn take(&mut self) -> Event<'_> {
        assert!(self.left > 0, "take without an event: call ready first");
        let (at, seq, prev_seq) = (self.at, self.seq, self.prev_seq);
        let taken = match self.item() {
            (InboxItem::Run(_), bytes) => Frame::split(&bytes[at..]).map_or(0, |(_, taken)| taken),
            (InboxItem::Notice(..), _) => 0,
        };
        self.step(taken);
        match self.item() {
            (InboxItem::Notice(notice, _), _) => Event::Notice(notice.clone()),
            (InboxItem::Run(run), bytes) => {
                let (frame, _) =
                    Frame::split(&bytes[at..]).expect("batches are checked when they are received");
                let position = Position { epoch: run.epoch, seq };
                Event::Record(Record { position, prev_seq, frame, log: &run.log })
            }
        }
    }

    #[inline]
    fn drain(&mut self, max: usize, mut each: impl FnMut(Event<'_>)) -> Result<usize, SubscribeError> {
        let mut given = 0;
        while given < max && self.ready()? {
            let (at, seq, left) =
                (self.at, self.seq, self.left.min((max - given).try_into().unwrap_or(u32::MAX)));
            let mut bytes_taken = 0;
            let mut prev_seq = self.prev_seq;
            match self.item() {
                (InboxItem::Notice(notice, _), _) => each(Event::Notice(notice.clone())),
                (InboxItem::Run(run), bytes) => {
                    let mut rest = &bytes[at..run.end];
                    for seq in seq..seq + u64::from(left) {
                        let (frame, taken) =
                            Frame::split(rest).expect("batches are checked when they are received");
                        rest = &rest[taken..];
                        let position = Position { epoch: run.epoch, seq };
                        each(Event::Record(Record { position, prev_seq, frame, log: &run.log }));
                        prev_seq = seq;
                    }
                    bytes_taken = run.end - at - rest.len();
                }
            }
            self.at += bytes_taken;
            self.seq += u64::from(left);
            self.prev_seq = prev_seq;
            self.left -= left;
            given += left as usize;
        }
        Ok(given)
    }

    fn resync(&mut self, log: &LogName, resync: Resync) -> Result<(), SubscribeError> {
        let mut session = lock(&self.shared.session);
        let message = session.resync(self.number, log, resync);
        self.shared.outbox.write(&message);
        Ok(())
    }

    /// Does not read the socket before it waits, because the wait reads it.
    #[inline]
    fn next(&mut self) -> Result<Event<'_>, SubscribeError> {
        while !self.has_received()? {
            self.wait(None)?;
        }
        Ok(self.take())
    }

    fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Event<'_>>, SubscribeError> {
        while !self.has_received()? {
            if !self.wait(Some(timeout))? {
                return Ok(None);
            }
        }
        Ok(Some(self.take()))
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, SubscribeError> {
        if self.left > 0 || self.next < self.batch.items.len() {
            return Ok(true);
        }
        self.leave_batch();
        let until = timeout.map(deadline);
        let inbox = &self.inbox;
        match self.shared.wait_until(&inbox.waiting, self.wait, until, || inbox.has_news()) {
            WaitOutcome::Done => Ok(true),
            WaitOutcome::TimedOut => Ok(false),
            WaitOutcome::Disconnected(why) => Err(SubscribeError::Connection(why.to_string())),
        }
    }

    #[cfg(feature = "tokio")]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SubscribeError>> {
        if self.left > 0 || self.next < self.batch.items.len() {
            return Poll::Ready(Ok(()));
        }
        self.leave_batch();
        let inbox = &self.inbox;
        match self.shared.poll_until(&inbox.waiting, self.number.into(), cx, || inbox.has_news()) {
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
    /// The node's refusal of the subscription, if there was one.
    pub fn refused(&self) -> Option<SubscribeError> {
        self.inbox.standing().err()
    }

    /// Whether the node has responded to the subscription. Fails if the node refused it.
    pub(crate) fn stands(&self) -> Result<bool, SubscribeError> {
        self.inbox.standing()
    }

    /// For a subscription from [`subscribe_at_once`](crate::Client::subscribe_at_once): the position before the first
    /// record of each log; `None` until the node has responded.
    pub fn start_positions(&self) -> Option<Vec<ConsumedPosition>> {
        lock(&self.shared.session).began(self.number)
    }

    /// Whether a received event is available.
    #[inline]
    pub(crate) fn has_received(&mut self) -> Result<bool, SubscribeError> {
        if self.left > 0 { Ok(true) } else { self.advance(false) }
    }

    /// Waits like [`wait`](Subscribe::wait), but also ends when `other` returns `true`.
    pub(crate) fn wait_or(
        &mut self,
        timeout: Duration,
        other: impl Fn() -> bool,
    ) -> Result<bool, SubscribeError> {
        self.leave_batch();
        let inbox = &self.inbox;
        let until = Some(deadline(timeout));
        let done = || inbox.has_news() || other();
        match self.shared.wait_until(&inbox.waiting, self.wait, until, done) {
            WaitOutcome::Done => Ok(true),
            WaitOutcome::TimedOut => Ok(false),
            WaitOutcome::Disconnected(why) => Err(SubscribeError::Connection(why.to_string())),
        }
    }

    /// Releases the chunks of the batch before the subscriber waits, so that they can be filled again.
    #[inline]
    fn leave_batch(&mut self) {
        if self.next > 0 {
            self.leave_item();
            self.batch.clear();
            self.next = 0;
        }
        self.tell_consumed();
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut session = lock(&self.shared.session);
        session.remove_subscription(self.number);
        self.say_end();
    }
}
