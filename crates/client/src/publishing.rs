//! One publisher, as the side that publishes and whoever reads the socket share it.

use std::sync::{Mutex, MutexGuard};

use dunlin_topic::{Acknowledged, Position, PublishError, Receipt};
use dunlin_wire::{
    AckKind, ErrorCode, FromClient, OpenPublisher, PublishRefused, Published, PublisherOpened, Refusal,
};

use crate::follow::{Waiting, lock};
use crate::lane::Lane;
use crate::refusal::publish_error;

#[derive(Debug)]
pub(crate) struct Publishing {
    pub(crate) number: u32,
    pub(crate) waiting: Waiting,
    state: Mutex<PublishingState>,
}

#[derive(Debug)]
pub(crate) struct PublishingState {
    pub(crate) subject: String,
    pub(crate) producer: u64,
    pub(crate) producer_epoch: u32,
    /// What follows the topic's literal prefix in the subject.
    pub(crate) tail: String,
    pub(crate) record_bytes_max: usize,
    pub(crate) opened: bool,
    pub(crate) lanes: Vec<Lane>,
    /// The first thing that went wrong and was not told yet.
    pub(crate) failed: Option<PublishError>,
    /// The topic refused the publisher itself.
    pub(crate) refused: bool,
    /// The last answer, until a flush tells it.
    pub(crate) last: Option<Receipt>,
    /// More is unanswered than may be: whoever wants to send more waits.
    pub(crate) crowded: bool,
    /// Its batches are not acknowledged.
    pub(crate) quiet: bool,
    /// It stands in the list of those with a batch to hand over.
    pub(crate) listed: bool,
}

impl Publishing {
    pub(crate) fn new(number: u32, subject: &str, producer: u64, producer_epoch: u32) -> Publishing {
        Publishing {
            number,
            waiting: Waiting::default(),
            state: Mutex::new(PublishingState {
                subject: subject.to_owned(),
                producer,
                producer_epoch,
                tail: String::new(),
                record_bytes_max: usize::MAX,
                opened: false,
                lanes: vec![Lane::new(0)],
                failed: None,
                refused: false,
                last: None,
                quiet: false,
                crowded: false,
                listed: false,
            }),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, PublishingState> {
        lock(&self.state)
    }

    /// Says again, on a new connection, what has no answer.
    pub(crate) fn resume(&self, out: &mut Vec<u8>) {
        let state = self.lock();
        self.open(&state, out);
        state.lanes.iter().flat_map(Lane::unanswered).for_each(|bytes| out.extend_from_slice(bytes));
    }

    pub(crate) fn open(&self, state: &PublishingState, out: &mut Vec<u8>) {
        let open = OpenPublisher {
            publisher: self.number,
            producer: state.producer,
            producer_epoch: state.producer_epoch,
            subject: &state.subject,
        };
        FromClient::OpenPublisher(open).encode(out);
    }

    pub(crate) fn opened(&self, opened: &PublisherOpened<'_>) {
        let mut state = self.lock();
        let tail = state.subject.strip_prefix(opened.subject_prefix).unwrap_or("").to_owned();
        // Opened by the topic's very pattern: each record brings its own tail.
        state.tail = if tail.contains(['*', '>']) { String::new() } else { tail };
        state.record_bytes_max = opened.record_bytes_max as usize;
        for partition in state.lanes.len() as u32..u32::from(opened.partitions) {
            state.lanes.push(Lane::new(partition));
        }
        state.opened = true;
        state.refused = false;
        drop(state);
        self.waiting.wake();
    }

    /// The topic refused the publisher: nothing that has no answer will get one.
    pub(crate) fn refused(&self, refusal: &Refusal<'_>) {
        let mut state = self.lock();
        state.fail(publish_error(refusal));
        state.refused = true;
        state.lanes.iter_mut().for_each(Lane::give_up);
        drop(state);
        self.waiting.wake();
    }

    pub(crate) fn published(&self, published: &Published) {
        let mut state = self.lock();
        if let Some(lane) = state.lanes.get_mut(published.partition as usize) {
            lane.published(published.through);
            lane.receipt = Some(receipt(published));
        }
        state.last = Some(receipt(published));
        drop(state);
        self.waiting.wake();
    }

    pub(crate) fn publish_refused(&self, refused: &PublishRefused<'_>) {
        let mut state = self.lock();
        if let Some(lane) = state.lanes.get_mut(refused.partition as usize) {
            let unknown = refused.refusal.code == ErrorCode::OutcomeUnknown;
            lane.refused(refused.producer_seq, unknown);
        }
        state.fail(publish_error(&refused.refusal));
        drop(state);
        self.waiting.wake();
    }
}

impl PublishingState {
    /// Keeps the first failure: those behind it follow from it.
    pub(crate) fn fail(&mut self, error: PublishError) {
        self.failed.get_or_insert(error);
    }

    /// Whether something has to be settled before anything more is sent.
    #[inline(always)]
    pub(crate) fn troubled(&self) -> bool {
        self.failed.is_some() || self.refused || self.crowded
    }

    /// Whether a refusal has to be followed by those of what was sent behind it.
    pub(crate) fn is_settling(&self) -> bool {
        self.lanes.iter().any(Lane::is_settling)
    }

    pub(crate) fn unanswered_bytes(&self) -> usize {
        self.lanes.iter().map(Lane::unanswered_bytes).sum()
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.lanes.iter().all(Lane::is_answered)
    }
}

pub(crate) fn receipt(published: &Published) -> Receipt {
    Receipt {
        partition: published.partition as u16,
        position: Position { epoch: published.position.epoch, seq: published.position.seq },
        duplicate: published.duplicate,
        acknowledged: match published.acknowledged {
            AckKind::Memory => Acknowledged::Memory,
            AckKind::Written => Acknowledged::Written,
            AckKind::Synced => Acknowledged::Synced,
            AckKind::Quorum => Acknowledged::Quorum,
        },
    }
}
