//! Keeps track of batches that were forwarded to topics' owners at other nodes, until the owners respond. The client
//! receives a refusal when the owner's response arrives, which may be after the `PONG` of a later `PING`.
//!
//! Limit: the node divides `forwarded_bytes_max` among the owners, and limits the bytes of each reliable or durable
//! topic. When such a part is used up, no more batches are forwarded to this owner or topic.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin::topic::{AckLevel, AckProgress, Log, PublishError, Receipt, Waiter};

use super::Session;
use super::inboxes::is_inbox;
use super::publish::PARTITION;

/// Token with which the session's waiter is notified that an owner has responded.
pub(super) const OWNER_RESPONDED: u32 = u32::MAX - 7;

/// Forwarded batches without a response.
#[derive(Debug, Default)]
pub(super) struct ForwardedBatches(Vec<OutcomeQueue>);

/// Forwarded batches in the order of publishing. A response is handled only after the responses to all earlier batches.
#[derive(Debug)]
struct OutcomeQueue {
    /// The log of a reliable or durable topic, whose owner may let publishers wait for room. `None` for all other
    /// topics, which share a queue.
    log: Option<Arc<Log>>,
    batches: VecDeque<ForwardedBatch>,
}

#[derive(Debug)]
struct ForwardedBatch {
    subject: Box<str>,
    log: Arc<Log>,
    records: usize,
    receipt: Receipt,
}

impl ForwardedBatches {
    /// Adds a batch. Returns whether it is the first of its queue.
    fn add(&mut self, batch: ForwardedBatch) -> bool {
        let config = batch.log.config();
        let may_wait = config.reliable.is_some() || config.durable.is_some();
        let log = may_wait.then_some(&batch.log);
        let is_same = |queue: &&mut OutcomeQueue| match (&queue.log, log) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        match self.0.iter_mut().find(is_same) {
            Some(queue) => {
                queue.batches.push_back(batch);
                false
            }
            None => {
                let log = log.cloned();
                self.0.push(OutcomeQueue { log, batches: VecDeque::from([batch]) });
                true
            }
        }
    }

    /// Removes accepted batches from the front of each queue. If an owner refused the next batch, removes and returns
    /// it. `None` if the owners of all next batches have not responded, or no batch is left.
    fn take_refused(&mut self, waiter: &Arc<Waiter>) -> Option<(ForwardedBatch, PublishError)> {
        let refused = self.0.iter_mut().find_map(|queue| queue.take_refused(waiter));
        self.0.retain(|queue| !queue.batches.is_empty());
        refused
    }
}

impl OutcomeQueue {
    fn take_refused(&mut self, waiter: &Arc<Waiter>) -> Option<(ForwardedBatch, PublishError)> {
        while let Some(first) = self.batches.front() {
            match first.log.poll_ack(first.receipt.position, AckLevel::ByOwner, waiter, OWNER_RESPONDED) {
                AckProgress::Waiting => return None,
                AckProgress::Reached | AckProgress::ByOwner(_) => drop(self.batches.pop_front()),
                AckProgress::Failed(error) => return self.batches.pop_front().map(|first| (first, error)),
            }
        }
        None
    }
}

impl Session {
    /// Remembers a batch that was forwarded to its topic's owner.
    pub(super) fn track_forwarded(&mut self, subject: &[u8], receipt: &Receipt, records: usize) {
        let targets_max = self.shared.limits.nats.targets_max;
        let Ok(target) = self.targets.find(&self.node, subject, 0, targets_max) else { return };
        let log = Arc::clone(&target.topic.logs()[PARTITION]);
        let subject = String::from_utf8_lossy(subject).into();
        if self.forwarded.add(ForwardedBatch { subject, log, records, receipt: *receipt }) {
            self.report_owner_refusals();
        }
    }

    /// Reports the owners' refusals to the client. While earlier refusals wait to be sent, does nothing.
    pub(super) fn report_owner_refusals(&mut self) {
        while self.refusals.is_empty()
            && let Some((batch, error)) = self.forwarded.take_refused(&self.waiter)
        {
            self.targets.remove(batch.subject.as_bytes());
            // If a reply is refused because its requester is gone, the client receives no error. The topic's name shows
            // whether the record was a reply, because an inbox's topic has the inbox's name, whatever the subject is.
            if !is_inbox(&batch.log.name().topic) || !matches!(error, PublishError::NoTopic(_)) {
                self.refuse_publish(batch.subject.as_bytes(), &error.to_string(), batch.records);
            }
        }
    }
}
