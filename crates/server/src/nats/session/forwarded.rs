//! Keeps track of batches that were forwarded to topics' owners at other nodes, until the owners respond. The client
//! receives a refusal when the owner's response arrives, which may be after the `PONG` of a later `PING`.
//!
//! Limit: the node divides `forwarded_bytes_max` among the owners, and limits the bytes of each reliable or durable
//! topic. When such a part is used up, no more batches are forwarded to this owner or topic.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dunlin::topic::{AckLevel, AckProgress, Log, PublishError, Receipt, Waiter};

use super::Session;
use super::inboxes::is_inbox;
use super::publish::PARTITION;

/// Token with which the session's waiter is notified that an owner has responded.
pub(super) const OWNER_RESPONDED: u32 = u32::MAX - 7;

/// Forwarded batches in the order of publishing. A response is handled only after the responses to all earlier batches
/// of the queue. A log of a reliable or durable topic, whose owner may let publishers wait for room, has a queue of its
/// own. So has a log of which a channel skips the connection's own records. The key of such a queue is the log's number.
#[derive(Debug, Default)]
pub(super) struct ForwardedBatches(BTreeMap<Option<u64>, VecDeque<ForwardedBatch>>);

#[derive(Debug)]
struct ForwardedBatch {
    subject: Box<str>,
    log: Arc<Log>,
    records: usize,
    receipt: Receipt,
}

impl ForwardedBatches {
    /// Removes and returns a batch whose owner has responded, with its outcome. `None` if there is none at present.
    fn take_answered(&mut self, waiter: &Arc<Waiter>) -> Option<(ForwardedBatch, AckProgress)> {
        let (key, outcome) = self.0.iter().find_map(|(key, queue)| {
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
        Some((first, outcome))
    }
}

impl Session {
    /// Remembers a batch that was forwarded to its topic's owner.
    pub(super) fn track_forwarded(&mut self, subject: &[u8], receipt: &Receipt, records: usize) {
        let targets_max = self.shared.limits.nats.targets_max;
        let Ok(target) = self.targets.find(&self.node, subject, 0, targets_max) else { return };
        let log = Arc::clone(&target.topic.logs()[PARTITION]);
        let subject = String::from_utf8_lossy(subject).into();
        let config = log.config();
        let may_wait = config.reliable.is_some() || config.durable.is_some();
        let key = (self.own.begin_forwarding(&log) || may_wait).then(|| log.number());
        let queue = self.forwarded.0.entry(key).or_default();
        queue.push_back(ForwardedBatch { subject, log, records, receipt: *receipt });
        if queue.len() == 1 {
            self.handle_owner_responses();
        }
    }

    /// Handles the owners' responses, and reports refusals to the client. While earlier refusals wait to be sent, does
    /// nothing.
    pub(super) fn handle_owner_responses(&mut self) {
        while self.refusals.is_empty()
            && let Some((batch, outcome)) = self.forwarded.take_answered(&self.waiter)
        {
            let mut last = None;
            match outcome {
                AckProgress::ByOwner(receipt) => {
                    last = Some(receipt.position);
                    self.add_own(&batch.log, receipt.position, batch.records);
                }
                AckProgress::Failed(error) => self.report_owner_refusal(&batch, &error),
                AckProgress::Waiting | AckProgress::Reached => {}
            }
            self.channel_queue.extend(self.own.end_forwarding(&batch.log, last));
        }
    }

    fn report_owner_refusal(&mut self, batch: &ForwardedBatch, error: &PublishError) {
        self.targets.remove(batch.subject.as_bytes());
        // If a reply is refused because its requester is gone, the client receives no error. The topic's name shows
        // whether the record was a reply, because an inbox's topic has the inbox's name, whatever the subject is.
        if !is_inbox(&batch.log.name().topic) || !matches!(error, PublishError::NoTopic(_)) {
            self.refuse_publish(batch.subject.as_bytes(), &error.to_string(), batch.records);
        }
    }
}
