//! Batches that were forwarded to other owners, until the owners respond. A refusal is reported when it arrives,
//! which may be after the `PONG` of a later `PING`.
//!
//! Limit: the node's `forwarded_bytes_max`; beyond it the session forwards no batch.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin::topic::{AckLevel, AckProgress, Log, PublishError, Receipt, Waiter};

use super::Session;
use super::inboxes::is_inbox;
use super::publish::PARTITION;

/// The waiter token of an owner's response.
pub(super) const OWNER_RESPONDED: u32 = u32::MAX - 7;

/// In the order of publishing. A response out of order waits for those before it.
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
    /// The first batch that its owner refused. Accepted batches before it are removed.
    fn refused(&mut self, waiter: &Arc<Waiter>) -> Option<(ForwardedBatch, PublishError)> {
        while let Some(first) = self.0.front() {
            match first.log.await_stored(first.receipt.position, AckLevel::ByOwner, waiter, OWNER_RESPONDED) {
                AckProgress::Waiting => return None,
                AckProgress::Reached | AckProgress::Answered(_) => drop(self.0.pop_front()),
                AckProgress::Failed(error) => return self.0.pop_front().map(|first| (first, error)),
            }
        }
        None
    }
}

impl Session {
    /// Remembers a batch that was sent to the owner of its topic.
    pub(super) fn batch_forwarded(&mut self, subject: &[u8], receipt: &Receipt, records: usize) {
        let targets_max = self.shared.limits.nats.targets_max;
        let Ok(target) = self.targets.find(&self.node, subject, 0, targets_max) else { return };
        let log = Arc::clone(&target.topic.logs()[PARTITION]);
        let subject = String::from_utf8_lossy(subject).into();
        self.forwarded.0.push_back(ForwardedBatch { subject, log, records, receipt: *receipt });
        if self.forwarded.0.len() == 1 {
            self.report_owner_refusals();
        }
    }

    /// Reports the owners' refusals, unless earlier refusals wait for room.
    pub(super) fn report_owner_refusals(&mut self) {
        while self.refusals.is_empty()
            && let Some((run, error)) = self.forwarded.refused(&self.waiter)
        {
            self.targets.forget(run.subject.as_bytes());
            // If the requester has ended, no client misses the reply. An inbox's topic has an inbox name,
            // regardless of its subjects.
            if !is_inbox(&run.log.name().topic) || !matches!(error, PublishError::NoTopic(_)) {
                self.refuse_publish(run.subject.as_bytes(), &error.to_string(), run.records);
            }
        }
    }
}
