//! Forwards batches of records to the node that owns their topic. A node uses this module for records that its clients
//! publish to another node's topic.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_topic::{Position, ProducerMark, PublishError, Receipt};
use dunlin_wire::{
    ExpectTopic, FLAG_ACK, FLAG_EXPECT, FromClient, LastAcknowledged, MessageList, NO_PRODUCER,
    OpenPublisher, PublishHeader, PublishRefused, Published, RUN_HEAD_BYTES, Refusal, publish_head,
};

use crate::client::{Client, SharedClient};
use crate::follow::lock;
use crate::link::{PumpOutcome, PumpWait};
use crate::publishing::receipt;
use crate::refusal::publish_error;

/// How many bytes are reserved for the message EXPECT_TOPIC, which may precede a batch.
const EXPECT_BYTES: usize = 64;

/// The outcome of a forwarded batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayOutcome {
    /// The node has responded: with a receipt, or with the reason why it refused the batch.
    Answered(Result<Receipt, PublishError>),
    /// The batch was not sent, or the node did not accept it, for the reason in this text. Nothing was appended.
    NotAccepted(String),
    /// The batch was sent, but the connection ended before the response, so the batch may have been appended.
    Lost,
}

/// A function that receives the outcome of a forwarded batch. It runs on the thread that reads the connection, or on
/// the thread that calls [`Relay::send`].
pub type RelayCallback = Box<dyn FnOnce(RelayOutcome) + Send>;

/// A handle that forwards batches of records to one topic. The records come from other publishers.
pub struct Relay {
    shared: Arc<SharedClient>,
    inner: Arc<RelayShared>,
}

pub(crate) struct RelayShared {
    pub(crate) number: u32,
    subject: String,
    producer: u64,
    producer_epoch: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// For each partition, the number that the next record receives if the record's producer does not number records.
    next: Vec<u64>,
    unanswered: VecDeque<UnansweredBatch>,
    refused: Option<PublishError>,
}

struct UnansweredBatch {
    partition: u32,
    first: u64,
    last: u64,
    callback: RelayCallback,
}

/// A batch of records to forward, its partition, and the number of its first record.
#[derive(Debug, Clone, Copy)]
pub struct RelayBatch<'a> {
    /// The number of the partition to which the records belong.
    pub partition: u32,
    /// The frames of the batch. They must be complete and valid.
    pub frames: &'a [u8],
    /// The number of frames.
    pub count: u32,
    /// The number that the producer has given to the first record; `None` if the producer does not number its records.
    /// The relay then numbers them.
    pub producer_seq: Option<u64>,
    /// If set, the owner appends the batch only if the log's last record has this sequence number.
    pub expect_last: Option<u64>,
    /// For a topic with a state: the position of the publisher's last acknowledged record. If the owner has lost this
    /// record, the owner refuses the batch.
    pub after: Option<Position>,
}

impl Client {
    /// Makes a relay to the topic whose pattern is exactly `pattern`. `mark` identifies the producer of the records, if
    /// there is one.
    pub fn relay(&self, pattern: &str, mark: Option<ProducerMark>) -> Relay {
        let mut session = lock(&self.shared.session);
        let inner = Arc::new(RelayShared {
            number: session.next_number(),
            subject: pattern.to_owned(),
            producer: mark.map_or(NO_PRODUCER, |mark| mark.producer),
            producer_epoch: mark.map_or(0, |mark| mark.producer_epoch),
            state: Mutex::default(),
        });
        let mut out = Vec::new();
        inner.encode_open(&mut out);
        session.add_relay(Arc::clone(&inner));
        self.shared.outbox.write(&out);
        Relay { shared: Arc::clone(&self.shared), inner }
    }

    /// Sends and receives on the connection, and waits at most about `longest`. Returns whether a message was received.
    pub fn pump(&self, longest: Duration) -> bool {
        let Ok(mut link) = self.shared.link.try_lock() else { return false };
        let pumped = link.pump(&self.shared, PumpWait::Block(longest));
        drop(link);
        self.shared.followers.wake_next_reader();
        self.shared.outbox.flush();
        matches!(pumped, PumpOutcome::Received)
    }

    /// Whether bytes still wait to be written to the socket.
    pub fn has_unsent(&self) -> bool {
        !self.shared.outbox.is_empty()
    }
}

impl Relay {
    /// Sends a batch. `callback` receives the outcome later, or at once if there is no connection or the relay was
    /// refused.
    pub fn send(&self, batch: RelayBatch<'_>, callback: RelayCallback) {
        let mut state = self.inner.state();
        if let Some(refused) = &state.refused {
            let refused = refused.clone();
            drop(state);
            return callback(RelayOutcome::Answered(Err(refused)));
        }
        let partition = batch.partition as usize;
        if state.next.len() <= partition {
            state.next.resize(partition + 1, 1);
        }
        let producer_seq = batch.producer_seq.unwrap_or(state.next[partition]);
        state.next[partition] = producer_seq + u64::from(batch.count);
        let header = PublishHeader {
            publisher: self.inner.number,
            partition: batch.partition,
            expect_seq: batch.expect_last.unwrap_or(0),
            producer_seq,
            count: batch.count,
            bytes: batch.frames.len() as u32,
        };
        let flags = FLAG_ACK | if batch.expect_last.is_some() { FLAG_EXPECT } else { 0 };
        let mut bytes = Vec::with_capacity(EXPECT_BYTES + RUN_HEAD_BYTES + batch.frames.len());
        if let Some(Position { epoch, seq }) = batch.after {
            let position = dunlin_wire::Position { epoch, seq };
            let last = [LastAcknowledged { partition: batch.partition as u16, position }];
            let (publisher, acknowledged) = (self.inner.number, MessageList::new(&last));
            FromClient::ExpectTopic(ExpectTopic { publisher, create: false, acknowledged })
                .encode(&mut bytes);
        }
        bytes.extend_from_slice(&publish_head(&header, flags));
        bytes.extend_from_slice(batch.frames);
        if !self.shared.outbox.write(&bytes) {
            drop(state);
            return callback(RelayOutcome::NotAccepted("no connection to the node".to_owned()));
        }
        let (partition, last) = (batch.partition, header.last_producer_seq());
        state.unanswered.push_back(UnansweredBatch { partition, first: producer_seq, last, callback });
    }

    /// Whether the owner has refused this relay. It then refuses every batch.
    pub fn is_refused(&self) -> bool {
        self.inner.state().refused.is_some()
    }

    /// Whether any batch has no response yet.
    pub fn has_unanswered(&self) -> bool {
        !self.inner.state().unanswered.is_empty()
    }
}

impl RelayShared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn encode_open(&self, out: &mut Vec<u8>) {
        let (publisher, producer, producer_epoch) = (self.number, self.producer, self.producer_epoch);
        let subject = &self.subject;
        FromClient::OpenPublisher(OpenPublisher { publisher, producer, producer_epoch, subject }).encode(out);
    }

    fn fail_unanswered(&self) {
        let lost = {
            let mut state = self.state();
            state.next.clear();
            std::mem::take(&mut state.unanswered)
        };
        lost.into_iter().for_each(|sent| (sent.callback)(RelayOutcome::Lost));
    }

    /// Continues on a new connection. Batches that were sent on the previous connection and have no response are lost.
    pub(crate) fn reopen(&self, out: &mut Vec<u8>) {
        self.fail_unanswered();
        self.state().refused = None;
        self.encode_open(out);
    }

    pub(crate) fn handle_refused(&self, refusal: &Refusal<'_>) {
        let error = publish_error(refusal);
        let lost = {
            let mut state = self.state();
            state.refused = Some(error.clone());
            std::mem::take(&mut state.unanswered)
        };
        lost.into_iter().for_each(|sent| (sent.callback)(RelayOutcome::Answered(Err(error.clone()))));
    }

    pub(crate) fn handle_published(&self, published: &Published) {
        let answered = {
            let mut state = self.state();
            let through = |sent: &UnansweredBatch| {
                sent.partition == published.partition && sent.last <= published.through
            };
            let at = state.unanswered.iter().position(through);
            at.and_then(|at| state.unanswered.remove(at))
        };
        if let Some(sent) = answered {
            (sent.callback)(RelayOutcome::Answered(Ok(receipt(published))));
        }
    }

    pub(crate) fn handle_publish_refused(&self, refused: &PublishRefused<'_>) {
        let answered = {
            let mut state = self.state();
            let is_refused_batch = |sent: &UnansweredBatch| {
                sent.partition == refused.partition && sent.first == refused.producer_seq
            };
            let at = state.unanswered.iter().position(is_refused_batch);
            at.and_then(|at| state.unanswered.remove(at))
        };
        if let Some(sent) = answered {
            (sent.callback)(match publish_error(&refused.refusal) {
                PublishError::OwnerAway(why) => RelayOutcome::NotAccepted(why),
                error => RelayOutcome::Answered(Err(error)),
            });
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        lock(&self.shared.session).remove_publisher(self.inner.number);
        let mut out = Vec::new();
        FromClient::ClosePublisher { publisher: self.inner.number }.encode(&mut out);
        self.shared.outbox.write(&out);
        self.inner.fail_unanswered();
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for RelayShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayShared").field("subject", &self.subject).finish_non_exhaustive()
    }
}
