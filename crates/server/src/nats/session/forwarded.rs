//! Keeps track of batches that were forwarded to topics' owners at other nodes, until the owners respond. The client
//! receives a refusal when the owner's response arrives, which may be after the `PONG` of a later `PING`.
//!
//! If the topic was deleted while a batch was on its way, the session publishes the batch again, once, to the topic
//! that owns the batch's subject afterwards. For this, the session keeps a copy of each batch. A later record of a
//! deleted topic waits until the outcomes of all earlier batches are known and the refused ones are published again.
//!
//! Limit: the node divides `forwarded_bytes_max` among the owners, and limits the bytes of each reliable or durable
//! topic. When the part of an owner or a topic is used up, no more batches are forwarded to that owner or topic. The
//! copies are charged to the memory of the client's connections. A batch without memory for a copy is not published
//! again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dunlin::topic::{AckLevel, AckProgress, Log, MemoryCharge, PublishError, Receipt, Waiter};

use super::Session;
use super::inboxes::is_inbox;
use super::publish::{BatchRecord, PARTITION, PublishedBatch, RetryFrom};

/// Token with which the session's waiter is notified that an owner has responded.
pub(super) const OWNER_RESPONDED: u32 = u32::MAX - 7;

/// The forwarded batches whose responses were not handled yet, in queues. A queue has its batches in the order of
/// publishing. A response is handled only after the responses to all earlier batches of its queue. A log has a queue of
/// its own, whose key is the log's number, in two cases: its topic is reliable or durable, so that the owner may let
/// publishers wait for room; or one of the channels that read the log skips the connection's own records. All other
/// logs share the queue with the key `None`.
#[derive(Debug, Default)]
pub(super) struct ForwardedBatches(BTreeMap<Option<u64>, VecDeque<ForwardedBatch>>);

#[derive(Debug)]
struct ForwardedBatch {
    subject: Box<str>,
    log: Arc<Log>,
    records: usize,
    receipt: Receipt,
    copy: Option<OperationsCopy>,
}

/// The operations that published a batch, as the client sent them.
#[derive(Debug)]
struct OperationsCopy {
    bytes: Vec<u8>,
    _charge: MemoryCharge,
}

/// Operations that the session handles again, because the topics of their records were deleted.
#[derive(Debug, Default)]
pub(super) struct RepeatedOperations {
    /// Operations that are not in `unread` yet.
    pending: Vec<u8>,
    /// Number of bytes at the beginning of `unread` that contain repeated operations.
    in_unread: usize,
    /// Whether a record of a deleted topic waits for the outcomes of earlier batches.
    waits_for_outcomes: bool,
}

impl RepeatedOperations {
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn waits_for_outcomes(&self) -> bool {
        self.waits_for_outcomes
    }

    /// Whether the operation at this offset in the read buffer is handled again.
    #[inline]
    pub(super) fn contains(&self, offset: usize) -> bool {
        offset < self.in_unread
    }

    /// Called when the first `bytes` bytes of the read buffer were handled.
    pub(super) fn on_handled(&mut self, bytes: usize) {
        self.in_unread = self.in_unread.saturating_sub(bytes);
    }
}

impl ForwardedBatches {
    /// Moves the log's batches from the shared queue to a queue of their own, and returns the length of this queue.
    /// Call [`handle_owner_responses`](Session::handle_owner_responses) afterwards: the queues may have other first
    /// batches now.
    pub(super) fn separate(&mut self, log: &Log) -> usize {
        let key = Some(log.number());
        let is_of_log = |batch: &ForwardedBatch| batch.log.number() == log.number();
        if let Some(shared) = self.0.get_mut(&None::<u64>)
            && shared.iter().any(is_of_log)
        {
            let (separated, others): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(shared).into_iter().partition(is_of_log);
            *shared = others;
            self.0.entry(key).or_default().extend(separated);
        }
        self.0.get(&key).map_or(0, VecDeque::len)
    }

    /// Finds the first queue, from the key `from` on, whose first batch has a response from its owner. Removes this
    /// batch, and returns it with the queue's key and the batch's outcome. `None` if there is no such queue.
    fn take_answered(
        &mut self,
        from: Option<u64>,
        waiter: &Arc<Waiter>,
    ) -> Option<(Option<u64>, ForwardedBatch, AckProgress)> {
        let (key, outcome) = self.0.range(from..).find_map(|(key, queue)| {
            let first = queue.front()?;
            let position = first.receipt.position;
            match first.log.poll_ack(position, AckLevel::ByOwner, waiter, OWNER_RESPONDED) {
                AckProgress::Waiting => None,
                outcome => Some((*key, outcome)),
            }
        })?;
        let queue = self.0.get_mut(&key)?;
        let first = queue.pop_front()?;
        if key.is_some() && queue.is_empty() {
            self.0.remove(&key);
        }
        Some((key, first, outcome))
    }
}

impl Session {
    /// Remembers a batch that was forwarded to its topic's owner.
    pub(super) fn track_forwarded(&mut self, batch: &PublishedBatch<'_>, receipt: &Receipt) {
        let (subject, records) = (batch[0].subject(), batch.len());
        let targets_max = self.shared.limits.nats.targets_max;
        let Ok(target) = self.targets.find(&self.node, subject, 0, targets_max) else { return };
        let log = Arc::clone(&target.topic.logs()[PARTITION]);
        let is_repeated = self.repeats.contains(batch[0].offset());
        let copy =
            if is_repeated || is_inbox(&log.name().topic) { None } else { self.copy_operations(batch) };
        let subject = String::from_utf8_lossy(subject).into();
        let config = log.config();
        let may_wait = config.reliable.is_some() || config.durable.is_some();
        let key = (self.own.begin_forwarding(&log) || may_wait).then(|| log.number());
        let queue = self.forwarded.0.entry(key).or_default();
        queue.push_back(ForwardedBatch { subject, log, records, receipt: *receipt, copy });
        if queue.len() == 1 {
            self.handle_owner_responses();
        }
    }

    fn copy_operations(&self, batch: &PublishedBatch<'_>) -> Option<OperationsCopy> {
        let mut bytes = Vec::with_capacity(batch.iter().map(BatchRecord::operation_bytes_max).sum());
        batch.iter().for_each(|record| record.encode_operation(&mut bytes));
        let charge = MemoryCharge::of(self.node.connection_budget(), bytes.capacity()).ok()?;
        Some(OperationsCopy { bytes, _charge: charge })
    }

    /// Handles the owners' responses, and reports refusals to the client. While earlier refusals wait to be sent, does
    /// nothing.
    pub(super) fn handle_owner_responses(&mut self) {
        let mut from = None;
        while self.refusals.is_empty()
            && let Some((key, batch, outcome)) = self.forwarded.take_answered(from, &self.waiter)
        {
            // The search continues with this queue. The owners of the earlier queues' first batches have not responded
            // yet; their responses notify the waiter.
            from = key;
            let mut last = None;
            // A record that waits for outcomes is handled again.
            self.has_unhandled |= std::mem::take(&mut self.repeats.waits_for_outcomes);
            match (outcome, &batch.copy) {
                (AckProgress::ByOwner(receipt), _) => {
                    last = Some(receipt.position);
                    self.add_own(&batch.log, receipt.position, batch.records);
                }
                (AckProgress::Failed(PublishError::Closed), Some(copy)) => {
                    self.repeats.pending.extend_from_slice(&copy.bytes);
                }
                (AckProgress::Failed(error), _) => self.report_owner_refusal(&batch, &error),
                (AckProgress::Waiting | AckProgress::Reached, _) => {}
            }
            self.channel_queue.extend(self.own.end_forwarding(&batch.log, last));
        }
    }

    /// Handles once more the operations whose batches were refused. They come before the operations that were not
    /// handled yet.
    pub(super) fn repeat_operations(&mut self, memory: &mut PublishedBatch<'static>) {
        let pending = std::mem::take(&mut self.repeats.pending);
        let mut unread = std::mem::take(&mut self.unread);
        // A session that closes has dropped its unread bytes.
        let at = self.repeats.in_unread.min(unread.len());
        self.repeats.in_unread = at + pending.len();
        drop(unread.splice(at..at, pending));
        self.handle_all(&unread, memory);
    }

    /// Lets a record of a deleted topic wait until the outcomes of all earlier batches of the topic are known, and the
    /// refused batches have been published again.
    pub(super) fn await_earlier_outcomes(&mut self, first: &BatchRecord<'_>) -> Result<(), RetryFrom> {
        let targets_max = self.shared.limits.nats.targets_max;
        let found = self.targets.find(&self.node, first.subject(), 0, targets_max);
        let Ok(log) = found.map(|target| Arc::clone(&target.topic.logs()[PARTITION])) else { return Ok(()) };
        self.handle_owner_responses();
        if self.forwarded.0.values().flatten().any(|batch| Arc::ptr_eq(&batch.log, &log)) {
            self.repeats.waits_for_outcomes = true;
        } else if !self.repeats.has_pending() {
            return Ok(());
        }
        self.end_blocked();
        Err(RetryFrom { from: first.offset() })
    }

    fn report_owner_refusal(&mut self, batch: &ForwardedBatch, error: &PublishError) {
        self.targets.remove(batch.subject.as_bytes());
        // If a reply is refused because its requester is gone, the client receives no error. The topic's name shows
        // whether the record was a reply, because an inbox's topic has the inbox's name, whatever the subject is.
        if !is_inbox(&batch.log.name().topic) || !matches!(error, PublishError::NoTopic(_)) {
            self.refuse_publish(batch.subject.as_bytes(), &refusal_text(error), batch.records);
        }
    }
}

/// The reason of a refusal. The error's own text promises a safe retry by the same producer, but NATS records have no
/// producer.
fn refusal_text(error: &PublishError) -> String {
    match error {
        PublishError::Unknown(why) => {
            format!("the record may have been appended: {why}; a retry may append it twice")
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nats_error_for_an_unknown_outcome_warns_of_a_duplicate() {
        let text = refusal_text(&PublishError::Unknown("the connection was lost".to_owned()));
        let expected =
            "the record may have been appended: the connection was lost; a retry may append it twice";
        assert_eq!(text, expected);
        assert_eq!(refusal_text(&PublishError::Closed), PublishError::Closed.to_string());
    }
}
