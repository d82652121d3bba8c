//! Tracks batches that were forwarded to other owners until the owners respond. A refusal is reported when it arrives,
//! which may be after the `PONG` of a later `PING`.
//!
//! Limit: the owner's part of the node's `forwarded_bytes_max`; above it, the session forwards no batch to this owner.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin::topic::{AckLevel, AckProgress, Log, PublishError, Receipt, Waiter};

use super::Session;
use super::inboxes::is_inbox;
use super::publish::PARTITION;

/// Token with which the response of an owner notifies the session's waiter.
pub(super) const OWNER_RESPONDED: u32 = u32::MAX - 7;

/// Forwarded batches in the order of publishing. A response that arrives out of order waits for the responses to
/// earlier batches.
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
    /// Removes the accepted batches at the front of the queue. Returns the next batch if its owner has refused it;
    /// `None` if the owner has not responded, or no batch is left.
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
    /// Stores a batch that was sent to the owner of its topic.
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

    /// Reports the owners' refusals to the client, unless earlier refusals are still waiting to be sent.
    pub(super) fn report_owner_refusals(&mut self) {
        while self.refusals.is_empty()
            && let Some((batch, error)) = self.forwarded.take_refused(&self.waiter)
        {
            self.targets.remove(batch.subject.as_bytes());
            // A refused reply to a requester that has ended is not reported. The check uses the topic's name, because
            // the topic of an inbox has the inbox's name, whatever the subject is.
            if !is_inbox(&batch.log.name().topic) || !matches!(error, PublishError::NoTopic(_)) {
                self.refuse_publish(batch.subject.as_bytes(), &error.to_string(), batch.records);
            }
        }
    }
}
