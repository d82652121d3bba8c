//! Acknowledgements of durable topics: said when the disk has come so far, and nobody waits for it meanwhile.
//!
//! Invariant: for each publisher and partition answers go out in the order of the messages, and none before its level is
//! reached. Where the disk fails, what has no answer is refused.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin::Refused;
use dunlin::topic::{Acknowledged, Log, Position, Receipt, StateClaim, StoredState, Waiter};
use dunlin::wire::{FromNode, PublishHeader, Published};

use super::Session;
use super::translate::{acknowledged_to_wire, position_to_wire};

/// The token that progress of the disk notifies.
pub(super) const STORED: u32 = u32::MAX - 2;

/// Messages that were appended and whose answer is not due yet.
#[derive(Debug, Default)]
pub(super) struct Unstored(Vec<Lane>);

/// Those of one publisher to one partition.
#[derive(Debug)]
struct Lane {
    publisher: u32,
    log: Arc<Log>,
    waiting: VecDeque<Answer>,
}

/// What is said of a message when it is stored.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) header: PublishHeader,
    pub(super) published: Published,
    pub(super) at: Position,
    pub(super) level: Acknowledged,
    /// Only a refusal is said.
    pub(super) is_quiet: bool,
    /// What the publisher knows of the topic's state.
    pub(super) claim: Option<Arc<StateClaim>>,
}

/// What has become of the first messages of a lane.
#[derive(Debug, Default)]
struct Outcome {
    stored: Vec<Published>,
    refused: Option<(Refused, Vec<PublishHeader>)>,
    /// There may be more to say at once.
    more: bool,
}

impl Answer {
    /// What the topic's owner elsewhere has said.
    fn answered(self, receipt: &Receipt) -> Published {
        Published {
            position: position_to_wire(receipt.position),
            acknowledged: acknowledged_to_wire(receipt.acknowledged),
            duplicate: receipt.duplicate,
            ..self.published
        }
    }
}

impl Unstored {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, log: &Arc<Log>, answer: Answer) {
        let publisher = answer.published.publisher;
        let of_lane = |lane: &&mut Lane| lane.publisher == publisher && Arc::ptr_eq(&lane.log, log);
        match self.0.iter_mut().find(of_lane) {
            Some(lane) => lane.waiting.push_back(answer),
            None => self.0.push(Lane { publisher, log: Arc::clone(log), waiting: [answer].into() }),
        }
    }

    /// The session ends.
    pub(super) fn leave(&self, waiter: &Arc<Waiter>) {
        self.0.iter().for_each(|lane| lane.log.leave_stored(waiter));
    }
}

impl Lane {
    /// Takes what the disk has come past, or will never come to; the waiter is notified of what is left.
    fn settle(&mut self, waiter: &Arc<Waiter>) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(first) = self.waiting.front() {
            match self.log.await_stored(first.at, first.level, waiter, STORED) {
                StoredState::Reached => {
                    let first = self.waiting.pop_front();
                    let claimed = first.iter().filter_map(|first| Some((first.claim.as_ref()?, first.at)));
                    claimed.for_each(|(claim, at)| claim.acknowledged(at));
                    outcome.stored.extend(first.map(|first| first.published));
                }
                StoredState::Answered(receipt) => {
                    let loud = self.waiting.pop_front().filter(|first| !first.is_quiet);
                    outcome.stored.extend(loud.map(|first| first.answered(&receipt)));
                }
                StoredState::Waiting => break,
                StoredState::Failed(error) if first.level == Acknowledged::ByOwner => {
                    // What was handed on behind it has an outcome of its own, and that comes after this one.
                    let lost = self.waiting.pop_front().map(|answer| answer.header);
                    outcome.refused = Some((Refused::from(&error), lost.into_iter().collect()));
                    outcome.more = true;
                    break;
                }
                StoredState::Failed(error) => {
                    let lost = self.waiting.drain(..).map(|answer| answer.header).collect();
                    outcome.refused = Some((Refused::from(&error), lost));
                }
            }
        }
        outcome
    }
}

impl Session {
    /// Says what has been stored by now.
    pub(super) fn acknowledge_stored(&mut self) {
        if self.unstored.is_empty() {
            return;
        }
        let waiter = Arc::clone(&self.waiter);
        let outcomes: Vec<_> = self.unstored.0.iter_mut().map(|lane| lane.settle(&waiter)).collect();
        self.unstored.0.retain(|lane| !lane.waiting.is_empty());
        let more = outcomes.iter().any(|outcome| outcome.more);
        for Outcome { stored, refused, .. } in outcomes {
            // One says all, but to another node: it answers for many publishers.
            let all = if self.from_node { 0 } else { stored.len().saturating_sub(1) };
            stored[all..].iter().for_each(|published| self.outbound.say(FromNode::Published(*published)));
            if let Some((refused, lost)) = refused {
                lost.iter().for_each(|header| self.refuse(header, &refused));
            }
        }
        if more {
            self.acknowledge_stored();
        }
    }
}
