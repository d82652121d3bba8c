//! Keeps track of batches that were forwarded to topics' owners at other nodes, until the owners respond. The client
//! receives a refusal when the owner's response arrives, which may be after the `PONG` of a later `PING`.
//!
//! Limit: the node divides `forwarded_bytes_max` among the owners. When an owner's part is used up, no more batches are
//! forwarded to this owner.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin::topic::{AckLevel, AckProgress, Log, PublishError, Receipt, Waiter};

use super::Session;
use super::inboxes::is_inbox;
use super::publish::PARTITION;

/// Token with which the session's waiter is notified that an owner has responded.
pub(super) const OWNER_RESPONDED: u32 = u32::MAX - 7;

/// Forwarded batches in the order of publishing. A response is handled only after the responses to all earlier batches.
#[derive(Debug, Default)]
pub(super) struct ForwardedBatches(VecDeque<ForwardedBatch>);

#[derive(Debug)]
struct ForwardedBatch {
    subject: Box<str>,
    log: Arc<Log>,
    records: usize,
    receipt: Receipt,
}

impl ForwardedBatches {
    /// Removes accepted batches from the front of the queue. If the owner refused the next batch, removes and returns
    /// it. `None` if its owner has not responded, or no batch is left.
    fn take_refused(&mut self, waiter: &Arc<Waiter>) -> Option<(ForwardedBatch, PublishError)> {
        while let Some(first) = self.0.front() {
            match first.log.poll_ack(first.receipt.position, AckLevel::ByOwner, waiter, OWNER_RESPONDED) {
                AckProgress::Waiting => return None,
                AckProgress::Reached | AckProgress::ByOwner(_) => drop(self.0.pop_front()),
                AckProgress::Failed(error) => return self.0.pop_front().map(|first| (first, error)),
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
        self.forwarded.0.push_back(ForwardedBatch { subject, log, records, receipt: *receipt });
        if self.forwarded.0.len() == 1 {
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
