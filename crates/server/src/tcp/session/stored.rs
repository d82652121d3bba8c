//! Holds acknowledgements back until the disk, or the other node that owns the topic, has confirmed the records. The
//! session handles other messages meanwhile.
//!
//! Invariants: for each publisher and partition, acknowledgements are sent in order, and each only after its level is
//! reached. If the disk fails, the batches without an acknowledgement are refused.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin::Refused;
use dunlin::topic::{AckLevel, AckProgress, Log, Position, Receipt, StateClaim, Waiter};
use dunlin::wire::{FromNode, PublishHeader, Published};

use super::Session;
use super::translate::{acknowledged_to_wire, position_to_wire};

/// Token of the notification that batches were stored or have failed.
pub(super) const STORED: u32 = u32::MAX - 2;

/// Queues of batches that were appended but are not acknowledged yet. There is a queue for each publisher and
/// partition.
#[derive(Debug, Default)]
pub(super) struct PendingAcks(Vec<AckQueue>);

/// The batches of one publisher to one partition that are not acknowledged yet.
#[derive(Debug)]
struct AckQueue {
    publisher: u32,
    log: Arc<Log>,
    pending: VecDeque<PendingAck>,
}

/// A batch that was appended, with the acknowledgement that is sent when the batch is stored.
#[derive(Debug)]
pub(super) struct PendingAck {
    pub(super) header: PublishHeader,
    pub(super) published: Published,
    pub(super) at: Position,
    pub(super) level: AckLevel,
    /// Whether the client wants to be informed only if the batch is refused.
    pub(super) is_quiet: bool,
    /// If the topic keeps a state, the state that the publisher knows.
    pub(super) claim: Option<Arc<StateClaim>>,
}

/// The acknowledgements and refusals of one queue that are due.
#[derive(Debug, Default)]
struct AckOutcome {
    stored: Vec<Published>,
    refused: Option<(Refused, Vec<PublishHeader>)>,
    /// Whether another acknowledgement or refusal of the queue may already be due.
    more: bool,
}

impl PendingAck {
    /// Returns the acknowledgement, with the position and the level that the topic's owner reported in its receipt.
    fn with_receipt(self, receipt: &Receipt) -> Published {
        Published {
            position: position_to_wire(receipt.position),
            acknowledged: acknowledged_to_wire(receipt.acknowledged),
            duplicate: receipt.duplicate,
            ..self.published
        }
    }
}

impl PendingAcks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, log: &Arc<Log>, ack: PendingAck) {
        let publisher = ack.published.publisher;
        let is_same = |queue: &&mut AckQueue| queue.publisher == publisher && Arc::ptr_eq(&queue.log, log);
        match self.0.iter_mut().find(is_same) {
            Some(queue) => queue.pending.push_back(ack),
            None => self.0.push(AckQueue { publisher, log: Arc::clone(log), pending: [ack].into() }),
        }
    }

    /// Removes the session's waiter from the logs. Call this when the session ends.
    pub(super) fn leave(&self, waiter: &Arc<Waiter>) {
        self.0.iter().for_each(|queue| queue.log.remove_ack_waiter(waiter));
    }
}

impl AckQueue {
    /// Removes and returns the batches at the head of the queue that were stored or have failed. The waiter is notified
    /// when the next batch is stored or fails.
    fn take_due(&mut self, waiter: &Arc<Waiter>) -> AckOutcome {
        let mut outcome = AckOutcome::default();
        while let Some(first) = self.pending.front() {
            match self.log.poll_ack(first.at, first.level, waiter, STORED) {
                AckProgress::Reached => {
                    let first = self.pending.pop_front();
                    let claims = first.iter().filter_map(|first| Some((first.claim.as_ref()?, first.at)));
                    claims.for_each(|(claim, at)| claim.record_ack(at));
                    outcome.stored.extend(first.map(|first| first.published));
                }
                AckProgress::ByOwner(receipt) => {
                    let acknowledged = self.pending.pop_front().filter(|first| !first.is_quiet);
                    outcome.stored.extend(acknowledged.map(|first| first.with_receipt(&receipt)));
                }
                AckProgress::Waiting => break,
                AckProgress::Failed(error) if first.level == AckLevel::ByOwner => {
                    // For each forwarded batch, the owner returns a result. So far, only this batch is known to have
                    // failed.
                    let lost = self.pending.pop_front().map(|ack| ack.header);
                    outcome.refused = Some((Refused::from(&error), lost.into_iter().collect()));
                    outcome.more = true;
                    break;
                }
                AckProgress::Failed(error) => {
                    let lost = self.pending.drain(..).map(|ack| ack.header).collect();
                    outcome.refused = Some((Refused::from(&error), lost));
                }
            }
        }
        outcome
    }
}

impl Session {
    pub(super) fn acknowledge_stored(&mut self) {
        while self.acknowledge_due() {}
    }

    /// Sends the acknowledgements and refusals that are due; for each publisher and partition, at most one refusal.
    /// Returns whether more may be due now.
    fn acknowledge_due(&mut self) -> bool {
        if self.pending_acks.is_empty() {
            return false;
        }
        let waiter = Arc::clone(&self.waiter);
        let outcomes: Vec<_> = self.pending_acks.0.iter_mut().map(|queue| queue.take_due(&waiter)).collect();
        self.pending_acks.0.retain(|queue| !queue.pending.is_empty());
        let more = outcomes.iter().any(|outcome| outcome.more);
        for AckOutcome { stored, refused, .. } in outcomes {
            // An acknowledgement also covers all earlier batches, so a client receives only the last one. Another node
            // receives every acknowledgement, because its batches come from many publishers.
            let all = if self.from_node { 0 } else { stored.len().saturating_sub(1) };
            stored[all..].iter().for_each(|published| self.outbound.push(FromNode::Published(*published)));
            if let Some((refused, lost)) = refused {
                lost.iter().for_each(|header| self.refuse_publish(header, &refused));
            }
        }
        more
    }
}
