//! What was published to topics of other nodes, until their owners have answered: a refusal is told when it comes, which may be
//! after the answer to a `PING`.
//!
//! Limit: `handed_bytes_max` of the node; more is not handed on.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin::topic::{Acknowledged, Log, PublishError, Receipt, StoredState, Waiter};

use super::Session;
use super::inboxes::is_inbox;
use super::publish::PARTITION;

/// The token that an owner's answer notifies.
pub(super) const ANSWERED: u32 = u32::MAX - 7;

/// In the order in which they were published. Those that were answered out of it wait for the first.
#[derive(Debug, Default)]
pub(super) struct Handed(VecDeque<Run>);

#[derive(Debug)]
struct Run {
    subject: Box<str>,
    log: Arc<Log>,
    records: usize,
    receipt: Receipt,
}

impl Handed {
    /// The first that its owner has refused; those that were taken are forgotten.
    fn refused(&mut self, waiter: &Arc<Waiter>) -> Option<(Run, PublishError)> {
        while let Some(first) = self.0.front() {
            match first.log.await_stored(first.receipt.position, Acknowledged::ByOwner, waiter, ANSWERED) {
                StoredState::Waiting => return None,
                StoredState::Reached | StoredState::Answered(_) => drop(self.0.pop_front()),
                StoredState::Failed(error) => return self.0.pop_front().map(|first| (first, error)),
            }
        }
        None
    }
}

impl Session {
    /// A run has gone to the owner of its topic.
    pub(super) fn handed_on(&mut self, subject: &[u8], receipt: &Receipt, records: usize) {
        let targets_max = self.shared.limits.nats.targets_max;
        let Ok(target) = self.targets.find(&self.node, subject, 0, targets_max) else { return };
        let log = Arc::clone(&target.topic.logs()[PARTITION]);
        let subject = String::from_utf8_lossy(subject).into();
        self.handed.0.push_back(Run { subject, log, records, receipt: *receipt });
        if self.handed.0.len() == 1 {
            self.hear_owners();
        }
    }

    /// Tells what owners have refused, unless earlier refusals still wait for room.
    pub(super) fn hear_owners(&mut self) {
        while self.refusals.is_empty()
            && let Some((run, error)) = self.handed.refused(&self.waiter)
        {
            self.targets.forget(run.subject.as_bytes());
            // The requester may be gone, and then nobody misses the reply. The topic of an inbox has such a name, whatever
            // its subjects are.
            if !is_inbox(&run.log.name().topic) || !matches!(error, PublishError::NoTopic(_)) {
                self.refuse_publish(run.subject.as_bytes(), &error.to_string(), run.records);
            }
        }
    }
}
