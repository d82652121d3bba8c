//! The state of one publisher, which its handle and the thread that reads the connection share.

use std::sync::{Mutex, MutexGuard};

use dunlin_topic::{AckLevel, Position, PublishError, Receipt};
use dunlin_wire::{
    AckKind, ErrorCode, ExpectTopic, FromClient, LastAcknowledged, MessageKind, MessageList, OpenPublisher,
    PublishRefused, Published, PublisherOpened, PublisherTopic, Refusal,
};

use crate::client::SharedClient;
use crate::follow::{HandleWaker, lock};
use crate::lane::{BatchOutcome, PublishLane, RefusedPart};
use crate::refusal::publish_error;

/// The maximum number of single records that may be refused before a call reports the refusals. After more refusals,
/// the client also discards the other records, which it has kept in order to send them again.
const REFUSED_RECORDS_MAX: u64 = 64;

/// The state of a publisher, which its handle and the thread that reads the connection share.
#[derive(Debug)]
pub(crate) struct PublisherShared {
    pub(crate) number: u32,
    pub(crate) waker: HandleWaker,
    state: Mutex<PublisherState>,
}

#[derive(Debug)]
pub(crate) struct PublisherState {
    pub(crate) subject: String,
    pub(crate) producer: u64,
    pub(crate) producer_epoch: u32,
    /// The part of the publisher's subject after the topic's literal prefix.
    pub(crate) tail: String,
    pub(crate) record_bytes_max: usize,
    pub(crate) opened: bool,
    /// The topic's name, as the node stated it; empty until the node has responded.
    topic: String,
    /// The topic's properties, as the node stated them; `None` before protocol version 4, which added them.
    topic_properties: Option<PublisherTopic>,
    pub(crate) lanes: Vec<PublishLane>,
    /// The first error that was not reported to a caller yet.
    pub(crate) failed: Option<PublishError>,
    /// The refusal of a single record that was not reported to a caller yet. The other records of its batch are not
    /// affected.
    pub(crate) refused_record: Option<PublishError>,
    /// Whether the topic has begun a new epoch, which no receipt has reported yet.
    pub(crate) new_epoch: bool,
    /// Whether a refusal of records was not handled yet.
    pub(crate) refusal_pending: bool,
    /// Whether the node refused to open the publisher, or the topic was deleted.
    pub(crate) refused: bool,
    /// The last receipt, which the next flush reports.
    pub(crate) last: Option<Receipt>,
    /// Whether too many bytes have no response yet. If so, the next call waits.
    pub(crate) over_limit: bool,
    /// Whether the publisher requests no acknowledgements.
    pub(crate) quiet: bool,
    /// Whether the publisher is in the client's list of publishers with unsent batches.
    pub(crate) listed: bool,
}

impl PublisherShared {
    pub(crate) fn new(number: u32, subject: &str, producer: u64, producer_epoch: u32) -> PublisherShared {
        PublisherShared {
            number,
            waker: HandleWaker::default(),
            state: Mutex::new(PublisherState {
                subject: subject.to_owned(),
                producer,
                producer_epoch,
                tail: String::new(),
                record_bytes_max: usize::MAX,
                opened: false,
                topic: String::new(),
                topic_properties: None,
                lanes: vec![PublishLane::new(0)],
                failed: None,
                refused_record: None,
                new_epoch: false,
                refusal_pending: false,
                refused: false,
                last: None,
                quiet: false,
                over_limit: false,
                listed: false,
            }),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, PublisherState> {
        lock(&self.state)
    }

    /// Returns the name of the topic if the node does not create it automatically. Such a topic must be created before
    /// it is used.
    pub(crate) fn configured_topic(&self) -> Option<String> {
        let state = self.lock();
        state.topic_properties.filter(|topic| !topic.created_automatically).map(|_| state.topic.clone())
    }

    /// Encodes the messages that open the publisher on a new connection, and the batches without a response, which are
    /// sent again.
    pub(crate) fn encode_reopen(&self, version: u8, out: &mut Vec<u8>) {
        let state = self.lock();
        self.encode_open(&state, version, out);
        state.lanes.iter().flat_map(PublishLane::unanswered).for_each(|bytes| out.extend_from_slice(bytes));
    }

    /// Encodes the messages that open the publisher. For a publisher that was open before, the messages include the
    /// position of its last acknowledged record in each partition: a state topic that has lost one of these records
    /// then refuses the publisher.
    pub(crate) fn encode_open(&self, state: &PublisherState, version: u8, out: &mut Vec<u8>) {
        if let Some(properties) = state.topic_properties
            && version >= MessageKind::ExpectTopic.since()
        {
            let at = |(partition, lane): (usize, &PublishLane)| {
                let Position { epoch, seq } = lane.acknowledged_at?;
                let position = dunlin_wire::Position { epoch, seq };
                Some(LastAcknowledged { partition: partition as u16, position })
            };
            let acknowledged: Vec<_> = state.lanes.iter().enumerate().filter_map(at).collect();
            let (create, acknowledged) = (properties.created_automatically, MessageList::new(&acknowledged));
            FromClient::ExpectTopic(ExpectTopic { publisher: self.number, create, acknowledged }).encode(out);
        }
        let open = OpenPublisher {
            publisher: self.number,
            producer: state.producer,
            producer_epoch: state.producer_epoch,
            subject: &state.subject,
        };
        FromClient::OpenPublisher(open).encode(out);
    }

    pub(crate) fn handle_opened(&self, opened: &PublisherOpened<'_>) {
        let mut state = self.lock();
        let tail = state.subject.strip_prefix(opened.subject_prefix).unwrap_or("").to_owned();
        // A publisher with a pattern has no tail of its own: each record states its tail.
        state.tail = if tail.contains(['*', '>']) { String::new() } else { tail };
        state.record_bytes_max = opened.record_bytes_max as usize;
        // A publisher that is opened again continues after the last number that the owner knows. A new publisher begins
        // with the number 1, so that the owner recognizes a retry under the same identity.
        if state.opened || state.refused {
            state
                .lanes
                .iter_mut()
                .zip(opened.last_seqs.iter())
                .for_each(|(lane, last)| lane.continue_after(last));
        }
        for partition in state.lanes.len() as u32..u32::from(opened.partitions) {
            state.lanes.push(PublishLane::new(partition));
        }
        opened.topic.clone_into(&mut state.topic);
        state.opened = true;
        state.refused = false;
        drop(state);
        self.waker.wake();
    }

    pub(crate) fn handle_topic(&self, topic: PublisherTopic) {
        self.lock().topic_properties = Some(topic);
    }

    /// Handles the refusal to open the publisher. The batches that the publisher has sent will receive no response.
    pub(crate) fn handle_refused(&self, refusal: &Refusal<'_>) {
        let mut state = self.lock();
        state.fail(publish_error(refusal));
        state.refused = true;
        state.lanes.iter_mut().for_each(PublishLane::discard_all);
        if refusal.code == ErrorCode::StateLost {
            state.reset_acknowledged();
        }
        drop(state);
        self.waker.wake();
    }

    pub(crate) fn handle_published(&self, published: &Published) {
        let mut state = self.lock();
        let mut new_epoch = false;
        if let Some(lane) = state.lanes.get_mut(published.partition as usize) {
            lane.acknowledge_through(published.through);
            let receipt = receipt(published);
            let before = lane.acknowledged_at.replace(receipt.position);
            new_epoch = before.is_some_and(|before| before.epoch != receipt.position.epoch);
            lane.receipt = Some(receipt);
        }
        state.new_epoch |= new_epoch;
        state.last = Some(receipt(published));
        drop(state);
        self.waker.wake();
    }

    pub(crate) fn handle_publish_refused(&self, refused: &PublishRefused<'_>) {
        let mut state = self.lock();
        let code = refused.refusal.code;
        let record = concerns_one_record(code).then_some(refused.refusal.numbers[0] as u32);
        state.refusal_pending = true;
        let mut refused_part = RefusedPart::Batch;
        let mut follows = false;
        if let Some(lane) = state.lanes.get_mut(refused.partition as usize) {
            // The owner may have refused the batch only because it had refused an earlier record. The lane then keeps
            // the batch, to send it again.
            follows = code == ErrorCode::ProducerGap && lane.is_settling() && lane.has_refused_record();
            refused_part = lane.handle_refusal(refused.producer_seq, batch_outcome(code), record);
        }
        match refused_part {
            RefusedPart::Record(record) => state.store_refusal(record, publish_error(&refused.refusal)),
            RefusedPart::Unknown => {}
            RefusedPart::Batch if follows => {}
            RefusedPart::Batch => state.fail(publish_error(&refused.refusal)),
        }
        if code == ErrorCode::StateLost
            && let Some(lane) = state.lanes.get_mut(refused.partition as usize)
        {
            // The topic has lost the last record that the node acknowledged, and continues in a new epoch.
            let had = lane.acknowledged_at.take().is_some();
            state.new_epoch |= had;
        }
        if code == ErrorCode::Closed {
            // The topic was deleted, and may have been created again.
            state.refused = true;
            state.reset_acknowledged();
        }
        drop(state);
        self.waker.wake();
    }
}

/// Returns whether a batch that was refused with this code may have been appended. The codes of
/// [`BatchOutcome::Refused`] come from the topic's log, which recognizes a batch that it has appended before.
fn batch_outcome(code: ErrorCode) -> BatchOutcome {
    use ErrorCode::{
        DuplicateForgotten, OutcomeUnknown, ProducerFenced, ProducerGap, Reducer, SeqMoved, StateLost,
    };
    match code {
        OutcomeUnknown => BatchOutcome::Unknown,
        Reducer | SeqMoved | ProducerGap | ProducerFenced | DuplicateForgotten | StateLost => {
            BatchOutcome::Refused
        }
        _ => BatchOutcome::NotAccepted,
    }
}

/// Whether a refusal with this code may concern only some of the batch's records. With the code `BATCH`, the node may
/// have appended the other records. Only the code `REDUCER` comes with the number of the refused record.
fn concerns_one_record(code: ErrorCode) -> bool {
    use ErrorCode::{BadFrame, Batch, Forbidden, Reducer, Subject};
    matches!(code, Reducer | Subject | Forbidden | BadFrame | Batch)
}

impl PublisherState {
    /// Stores an error, unless there already is one: later errors follow from the first.
    pub(crate) fn fail(&mut self, error: PublishError) {
        self.failed.get_or_insert(error);
    }

    /// Stores the refusal of the record with the number `record`, so that a later call reports it.
    fn store_refusal(&mut self, record: u64, why: PublishError) {
        match &mut self.refused_record {
            Some(PublishError::LeftOut { more, .. }) => *more += 1,
            _ => self.refused_record = Some(PublishError::LeftOut { record, more: 0, why: Box::new(why) }),
        }
    }

    /// Forgets the acknowledged positions, because the topic was deleted. If there were any, the next receipt reports a
    /// new epoch.
    fn reset_acknowledged(&mut self) {
        self.new_epoch |= self.lanes.iter().any(|lane| lane.acknowledged_at.is_some());
        self.lanes.iter_mut().for_each(|lane| lane.acknowledged_at = None);
    }

    /// Whether each record needs a message of its own. In a common message, the refusal of one record would concern all
    /// records, and a publisher without acknowledgements cannot send them again.
    pub(crate) fn sends_records_singly(&self) -> bool {
        self.quiet && self.topic_properties.is_some_and(|topic| topic.keeps_state)
    }

    /// As soon as all batches have a response, resends the records that were refused only because of another record.
    /// After too many refusals, discards and counts these records instead.
    pub(crate) fn resend_after_refusal(&mut self, number: u32, shared: &SharedClient) {
        if self.is_settling() {
            return;
        }
        self.refusal_pending = false;
        let discards_rest = matches!(
            &self.refused_record,
            Some(PublishError::LeftOut { more, .. }) if *more >= REFUSED_RECORDS_MAX
        );
        for lane in self.lanes.iter_mut().filter(|lane| lane.can_resend_rest()) {
            if discards_rest {
                let discarded = lane.discard_refused();
                if let Some(PublishError::LeftOut { more, .. }) = &mut self.refused_record {
                    *more += discarded;
                }
                continue;
            }
            lane.resend_refused(number, |bytes| {
                shared.outbox.write(bytes);
            });
        }
    }

    /// Whether an error, a refusal or too many unanswered bytes must be handled before further records are sent.
    #[inline(always)]
    pub(crate) fn is_blocked(&self) -> bool {
        self.failed.is_some() || self.refused || self.over_limit || self.refusal_pending
    }

    /// Whether a batch was refused, and some later batches have no response yet.
    pub(crate) fn is_settling(&self) -> bool {
        self.lanes.iter().any(PublishLane::is_settling)
    }

    pub(crate) fn unanswered_bytes(&self) -> usize {
        self.lanes.iter().map(PublishLane::unanswered_bytes).sum()
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.lanes.iter().all(PublishLane::is_answered)
    }
}

pub(crate) fn receipt(published: &Published) -> Receipt {
    Receipt {
        partition: published.partition as u16,
        position: Position { epoch: published.position.epoch, seq: published.position.seq },
        duplicate: published.duplicate,
        new_epoch: false,
        acknowledged: match published.acknowledged {
            AckKind::Memory => AckLevel::Memory,
            AckKind::Written => AckLevel::Written,
            AckKind::Synced => AckLevel::Synced,
            AckKind::Quorum => AckLevel::Quorum,
        },
    }
}
