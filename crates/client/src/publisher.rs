//! The client's publisher. It collects records in batches, and sends the batches to the node.

use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin_topic::{Draft, Publish, PublishError, Receipt, RecordMeta, key_hash};
use dunlin_wire::{FLAG_ACK, FLAG_EXPECT, FLAG_QUIET, FromClient};

use crate::client::SharedClient;
use crate::drive::WaitOutcome;
use crate::follow::lock;
use crate::publishing::{PublisherShared, PublisherState};

/// The identity of a producer. By its number and epoch, a node recognizes the producer after a lost connection or a
/// restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdentity {
    /// The producer's number, which must not be 0.
    pub producer: u64,
    /// A number that grows with each instance of the producer. The node refuses the records of instances with a lower
    /// epoch.
    pub epoch: u32,
}

/// The options of a publisher: its producer identity, and whether the node acknowledges its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublisherOptions {
    /// The producer's identity; `None` for a new one.
    pub identity: Option<ProducerIdentity>,
    /// Whether the publisher requests no acknowledgements, and sends no record again after a lost connection. A later
    /// call still reports a refusal.
    pub quiet: bool,
}

/// Publishes records to one subject or topic of a node.
///
/// [`PublishError::Unknown`] means that the node did not answer for two heartbeats. The publisher keeps the records,
/// and sends them again with the same numbers when the node is back. Call [`flush`](Publish::flush) to learn the
/// result. Do not publish the same records again, because the topic could then contain them twice.
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<SharedClient>,
    publishing: Arc<PublisherShared>,
    quiet: bool,
}

#[derive(Debug, Clone, Copy)]
struct BatchHeader {
    flags: u8,
    expect_seq: u64,
    /// Whether the batch's records are independent of each other, so that the refusal of one does not affect the
    /// others.
    splittable: bool,
}

impl BatchHeader {
    const ONE: BatchHeader = BatchHeader { flags: FLAG_ACK, expect_seq: 0, splittable: false };
    const ACK: BatchHeader = BatchHeader { flags: FLAG_ACK, expect_seq: 0, splittable: true };
    const PLAIN: BatchHeader = BatchHeader { flags: 0, expect_seq: 0, splittable: true };
    const QUIET: BatchHeader = BatchHeader { flags: FLAG_QUIET, expect_seq: 0, splittable: true };
}

impl PublisherShared {
    /// Numbers the records in the unsent batch of `lane`, and sends the batch.
    fn send_batch(
        &self,
        state: &mut PublisherState,
        shared: &SharedClient,
        lane: usize,
        header: BatchHeader,
    ) {
        let expects_response = header.flags & FLAG_QUIET == 0;
        let mut written = true;
        let mut write = |bytes: &[u8]| written = shared.outbox.write(bytes);
        if !expects_response && state.sends_records_singly() {
            state.lanes[lane].send_each_record(self.number, header.flags, &mut write);
        } else {
            state.lanes[lane].send_batch(
                self.number,
                header.flags,
                header.expect_seq,
                expects_response,
                header.splittable,
                &mut write,
            );
        }
        if !written && !expects_response {
            state.fail(PublishError::Unknown("no connection to the node".to_owned()));
        }
    }

    fn send_all_batches(&self, state: &mut PublisherState, shared: &SharedClient, header: BatchHeader) {
        for lane in 0..state.lanes.len() {
            if state.lanes[lane].has_batch() {
                self.send_batch(state, shared, lane, header);
            }
        }
    }

    /// Sends the unsent batches of this publisher. The caller has removed the publisher from the list of publishers
    /// with unsent batches.
    pub(crate) fn send_listed_batches(&self, shared: &SharedClient) {
        let mut state = self.lock();
        state.listed = false;
        if !state.is_blocked() {
            let header = if state.quiet { BatchHeader::QUIET } else { BatchHeader::PLAIN };
            self.send_all_batches(&mut state, shared, header);
        }
    }

    /// Resends those records of a refused batch that were not refused themselves. If an error must first be reported to
    /// the caller, sends nothing. Returns whether the flusher has to wait for further responses.
    pub(crate) fn resend_if_needed(&self, shared: &SharedClient) -> bool {
        let mut state = self.lock();
        if state.refusal_pending && state.failed.is_none() && !state.refused {
            state.resend_after_refusal(self.number, shared);
        }
        if state.failed.is_some() || state.refused {
            return false;
        }
        state.unanswered_bytes() > 0
    }
}

impl Publisher {
    pub(crate) fn new(shared: Arc<SharedClient>, publishing: Arc<PublisherShared>, quiet: bool) -> Publisher {
        publishing.lock().quiet = quiet;
        Publisher { shared, publishing, quiet }
    }

    /// The size in bytes of all records without a response, including records that were not sent yet.
    pub fn unanswered_bytes(&self) -> usize {
        let state = self.publishing.lock();
        state.unanswered_bytes()
            + state.lanes.iter().map(crate::lane::PublishLane::batch_bytes).sum::<usize>()
    }

    /// The number of records that the node has acknowledged, over all connections; always 0 for a `quiet` publisher.
    pub fn acknowledged_records(&self) -> u64 {
        self.publishing.lock().lanes.iter().map(crate::lane::PublishLane::acknowledged).sum()
    }

    /// Sends all refused records again, in order, after a call has reported the refusal. Records that were not sent
    /// before this report are also sent. If the caller publishes a new record instead, all these records are discarded.
    pub fn send_refused_again(&mut self) -> Result<(), PublishError> {
        let mut state = self.lock_when_ready()?;
        let number = self.publishing.number;
        for lane in &mut state.lanes {
            lane.resend_refused(number, |bytes| {
                self.shared.outbox.write(bytes);
            });
        }
        state.over_limit = state.unanswered_bytes() > self.shared.limits.in_flight_bytes_max;
        drop(state);
        self.shared.wait_until_written(&self.publishing.waker);
        Ok(())
    }

    pub(crate) fn wait_opened(&self) -> Result<(), PublishError> {
        self.wait(|state| state.opened || state.failed.is_some())?;
        let mut state = self.publishing.lock();
        state.failed.take().map_or(Ok(()), Err)
    }

    /// Whether the node has opened the publisher. Fails if the node refused to do so.
    pub(crate) fn is_opened(&self) -> Result<bool, PublishError> {
        let mut state = self.publishing.lock();
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(state.opened),
        }
    }

    /// Waits until `done` returns `true`. If the node does not respond in time, the publisher keeps the records without
    /// a response, and sends them again when the node is back.
    fn wait(&self, done: impl Fn(&PublisherState) -> bool) -> Result<(), PublishError> {
        let until = Instant::now() + Duration::from_millis(self.shared.limits.answer_ms_max);
        let publishing = &self.publishing;
        let wait = self.shared.options.wait;
        let why =
            match self.shared.wait_until(&publishing.waker, wait, Some(until), || done(&publishing.lock())) {
                WaitOutcome::Done => return Ok(()),
                WaitOutcome::TimedOut => "the node did not answer in time".to_owned(),
                WaitOutcome::Disconnected(why) => why.to_string(),
            };
        Err(PublishError::Unknown(why))
    }

    /// Opens the publisher again after the node has refused it.
    fn reopen(&self) {
        let session = lock(&self.shared.session);
        let mut out = Vec::new();
        FromClient::ClosePublisher { publisher: self.publishing.number }.encode(&mut out);
        let mut state = self.publishing.lock();
        self.publishing.encode_open(&state, session.version, &mut out);
        (state.refused, state.opened) = (false, false);
        drop(state);
        self.shared.outbox.write(&out);
        drop(session);
    }

    /// Waits until new records can be sent, and returns the locked state. Fails if the error of an earlier record was
    /// not reported yet.
    #[inline(always)]
    fn lock_when_ready(&self) -> Result<MutexGuard<'_, PublisherState>, PublishError> {
        let state = self.publishing.lock();
        if state.is_blocked() { self.settle(state) } else { Ok(state) }
    }

    #[cold]
    fn settle<'s>(
        &'s self,
        mut state: MutexGuard<'s, PublisherState>,
    ) -> Result<MutexGuard<'s, PublisherState>, PublishError> {
        if state.over_limit {
            drop(state);
            let max = self.shared.limits.in_flight_bytes_max;
            self.wait(|state| state.failed.is_some() || state.unanswered_bytes() <= max / 2)?;
            state = self.publishing.lock();
            state.over_limit = false;
        }
        if state.is_settling() {
            drop(state);
            // After the owner has refused a batch, it also refuses all later batches. New records can receive numbers
            // only when the owner has responded to all of these batches.
            self.wait(PublisherState::is_answered)?;
            state = self.publishing.lock();
        }
        if state.refusal_pending && state.failed.is_none() {
            state.resend_after_refusal(self.publishing.number, &self.shared);
        }
        if let Some(error) = state.failed.take() {
            state.refusal_pending = false;
            state.lanes.iter_mut().for_each(crate::lane::PublishLane::move_batch_to_refused);
            return Err(error);
        }
        if state.refused {
            drop(state);
            self.reopen();
            self.wait_opened()?;
            state = self.publishing.lock();
        }
        Ok(state)
    }

    /// Adds a record to the unsent batch of its lane. Returns the index of the lane, and the size of the batch in
    /// bytes.
    #[inline(always)]
    fn push(&self, state: &mut PublisherState, draft: &Draft<'_>) -> Result<(usize, usize), PublishError> {
        let lane = lane_index(state.lanes.len(), draft.meta.key);
        let PublisherState { lanes, tail, record_bytes_max, .. } = state;
        let payload = draft.payload.as_slice();
        let bytes = if tail.is_empty() {
            lanes[lane].push(&draft.meta, payload, *record_bytes_max)?
        } else {
            lanes[lane].push(&RecordMeta { subject_tail: tail, ..draft.meta }, payload, *record_bytes_max)?
        };
        Ok((lane, bytes))
    }

    /// Sends `drafts` as one batch, and waits for the response.
    fn publish_and_wait(&self, drafts: &[Draft<'_>], header: BatchHeader) -> Result<Receipt, PublishError> {
        let (lane, seq) = {
            let mut state = self.lock_when_ready()?;
            let before = if self.quiet { BatchHeader::QUIET } else { BatchHeader::PLAIN };
            self.publishing.send_all_batches(&mut state, &self.shared, before);
            let lane = self.push_all(&mut state, drafts)?;
            // Discard the receipt of an earlier call, which does not belong to these records.
            state.lanes[lane].receipt = None;
            self.publishing.send_batch(&mut state, &self.shared, lane, header);
            (lane, state.lanes[lane].last_seq())
        };
        let done =
            |state: &PublisherState| state.failed.is_some() || state.lanes[lane].is_answered_through(seq);
        loop {
            self.wait(done)?;
            let mut state = self.publishing.lock();
            if state.failed.is_some() {
                return self.settle(state).and(Err(PublishError::Closed));
            }
            // After the wait, another thread may have sent the records again, so that they have no response yet.
            if !done(&state) {
                continue;
            }
            // The owner may have refused these records only because it had refused an earlier record. The lane has kept
            // them, and `settle` sends them again.
            if state.refusal_pending && state.lanes[lane].has_refused_record() {
                state.lanes[lane].receipt = None;
                drop(self.settle(state)?);
                continue;
            }
            if let Some(receipt) = state.lanes[lane].receipt.take() {
                return Ok(Receipt { new_epoch: std::mem::take(&mut state.new_epoch), ..receipt });
            }
            let no_position = || PublishError::Unknown("the node's response contains no position".to_owned());
            return Err(state.refused_record.take().unwrap_or_else(no_position));
        }
    }

    fn push_all(&self, state: &mut PublisherState, drafts: &[Draft<'_>]) -> Result<usize, PublishError> {
        let first = drafts.first().ok_or(PublishError::Batch("a batch needs at least one record"))?;
        let lane = lane_index(state.lanes.len(), first.meta.key);
        if drafts.iter().any(|draft| lane_index(state.lanes.len(), draft.meta.key) != lane) {
            return Err(PublishError::Batch(
                "the keys of the batch's records belong to several partitions: publish the records one by \
                 one",
            ));
        }
        for draft in drafts {
            let pushed = self.push(state, draft).and_then(|(_, bytes)| {
                let fits = bytes <= self.shared.limits.run_bytes_max;
                let too_large = "the batch is larger than a message may be: publish fewer records at once";
                if fits { Ok(()) } else { Err(PublishError::Batch(too_large)) }
            });
            if let Err(error) = pushed {
                state.lanes[lane].discard_batch();
                return Err(error);
            }
        }
        Ok(lane)
    }

    #[inline]
    fn send_draft(&mut self, draft: &Draft<'_>) -> Result<(), PublishError> {
        let mut state = self.lock_when_ready()?;
        let (lane, bytes) = self.push(&mut state, draft)?;
        let refused_record = state.refused_record.take();
        if bytes < self.shared.limits.batch_bytes {
            if !state.listed {
                state.listed = true;
                lock(&self.shared.filling).push(Arc::clone(&self.publishing));
                drop(state);
                self.shared.flusher.schedule(&self.shared);
            }
            return refused_record.map_or(Ok(()), Err);
        }
        let header = if self.quiet { BatchHeader::QUIET } else { BatchHeader::PLAIN };
        self.publishing.send_batch(&mut state, &self.shared, lane, header);
        // This call still succeeds, but the next one waits until enough records are acknowledged.
        state.over_limit = state.unanswered_bytes() > self.shared.limits.in_flight_bytes_max;
        drop(state);
        self.shared.wait_until_written(&self.publishing.waker);
        refused_record.map_or(Ok(()), Err)
    }

    /// Sends all unsent batches, and requests that the node responds at once.
    fn begin_flush(&self) -> Result<(), PublishError> {
        let mut state = self.lock_when_ready()?;
        for lane in &mut state.lanes {
            lane.resend_unknown(|bytes| {
                self.shared.outbox.write(bytes);
            });
        }
        let header = if self.quiet { BatchHeader::QUIET } else { BatchHeader::ACK };
        self.publishing.send_all_batches(&mut state, &self.shared, header);
        Ok(())
    }

    fn end_flush(&self) -> Result<Option<Receipt>, PublishError> {
        let state = self.publishing.lock();
        let mut state = if state.is_blocked() { self.settle(state)? } else { state };
        if let Some(refused_record) = state.refused_record.take() {
            return Err(refused_record);
        }
        let receipt = state.last.take();
        let new_epoch = receipt.is_some() && std::mem::take(&mut state.new_epoch);
        Ok(receipt.map(|receipt| Receipt { new_epoch, ..receipt }))
    }

    /// Whether the flush is over: all records have a response, or there is an error to report.
    fn is_flushed(state: &PublisherState) -> bool {
        state.failed.is_some() || state.is_answered()
    }

    /// Fails with the error of an earlier record that was not reported yet, if there is one.
    pub(crate) fn check_failure(&mut self) -> Result<(), PublishError> {
        self.lock_when_ready().map(drop)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.publishing.lock().failed.is_some()
    }

    pub(crate) fn connections(&self) -> u64 {
        lock(&self.shared.session).generation
    }

    /// Sends all unsent batches, and does not wait for a response.
    pub fn send_batches(&mut self) -> Result<(), PublishError> {
        let mut state = self.lock_when_ready()?;
        let header = if self.quiet { BatchHeader::QUIET } else { BatchHeader::PLAIN };
        self.publishing.send_all_batches(&mut state, &self.shared, header);
        drop(state);
        self.shared.wait_until_written(&self.publishing.waker);
        Ok(())
    }
}

impl Publish for Publisher {
    fn publish<'a>(&mut self, draft: impl Into<Draft<'a>>) -> Result<Receipt, PublishError> {
        self.publish_and_wait(&[draft.into()], BatchHeader::ONE)
    }

    fn publish_batch(&mut self, drafts: &[Draft<'_>]) -> Result<Receipt, PublishError> {
        self.publish_and_wait(drafts, BatchHeader::ONE)
    }

    fn publish_expecting<'a>(
        &mut self,
        last_seq: u64,
        draft: impl Into<Draft<'a>>,
    ) -> Result<Receipt, PublishError> {
        let header = BatchHeader { flags: FLAG_ACK | FLAG_EXPECT, expect_seq: last_seq, splittable: false };
        self.publish_and_wait(&[draft.into()], header)
    }

    #[inline]
    fn send<'a>(&mut self, draft: impl Into<Draft<'a>>) -> Result<(), PublishError> {
        self.send_draft(&draft.into())
    }

    fn flush(&mut self) -> Result<Option<Receipt>, PublishError> {
        self.begin_flush()?;
        self.shared.wait_until_written(&self.publishing.waker);
        loop {
            self.wait(Publisher::is_flushed)?;
            // `lock_when_ready` resends the records that were refused only because of an earlier record.
            drop(self.lock_when_ready()?);
            if Publisher::is_flushed(&self.publishing.lock()) {
                return self.end_flush();
            }
        }
    }

    #[cfg(feature = "tokio")]
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Receipt>, PublishError>> {
        if let Err(error) = self.begin_flush() {
            return Poll::Ready(Err(error));
        }
        let publishing = &self.publishing;
        let done = || {
            let mut state = publishing.lock();
            if state.refusal_pending && state.failed.is_none() {
                state.resend_after_refusal(publishing.number, &self.shared);
            }
            Publisher::is_flushed(&state) && (!state.refusal_pending || state.failed.is_some())
        };
        match self.shared.poll_until(&publishing.waker, publishing.number.into(), cx, done) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(WaitOutcome::Done) => Poll::Ready(self.end_flush()),
            Poll::Ready(WaitOutcome::TimedOut) => {
                Poll::Ready(Err(PublishError::Unknown("the node did not answer".to_owned())))
            }
            Poll::Ready(WaitOutcome::Disconnected(why)) => {
                Poll::Ready(Err(PublishError::Unknown(why.to_string())))
            }
        }
    }

    #[cfg(not(feature = "tokio"))]
    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Option<Receipt>, PublishError>> {
        Poll::Ready(self.flush())
    }
}

impl Drop for Publisher {
    /// Sends all unsent batches, and does not wait for a response. To learn whether the records were appended, call
    /// [`flush`](Publish::flush) before the drop.
    fn drop(&mut self) {
        let mut state = self.publishing.lock();
        let header = if self.quiet { BatchHeader::QUIET } else { BatchHeader::PLAIN };
        self.publishing.send_all_batches(&mut state, &self.shared, header);
        // No caller can learn of the responses any more, so the flusher must not wait for them.
        state.lanes.iter_mut().for_each(crate::lane::PublishLane::discard_all);
        drop(state);
        let mut session = lock(&self.shared.session);
        session.remove_publisher(self.publishing.number);
        let mut out = Vec::new();
        FromClient::ClosePublisher { publisher: self.publishing.number }.encode(&mut out);
        self.shared.outbox.write(&out);
    }
}

/// Returns the index of the partition for a key, by the rule that nodes use.
#[inline(always)]
fn lane_index(lanes: usize, key: Option<&[u8]>) -> usize {
    match key {
        Some(key) if lanes > 1 => (key_hash(key) % lanes as u64) as usize,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, ClientOptions};

    #[test]
    fn responses_to_a_dropped_publisher_are_not_awaited() {
        // The test needs no node: the record must stay without a response.
        let client = Client::open("dunlin://127.0.0.1:1", ClientOptions::default()).unwrap();
        let mut publisher = client.publisher_nowait("orders.eu", PublisherOptions::default());
        publisher.send("record").unwrap();
        publisher.send_batches().unwrap();
        let publishing = Arc::clone(&publisher.publishing);
        assert!(publishing.resend_if_needed(&client.shared), "the record has no response");
        drop(publisher);
        assert!(!publishing.resend_if_needed(&client.shared));
    }
}
