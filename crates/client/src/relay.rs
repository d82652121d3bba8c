//! Relays batches to the node that owns their topic, as a node does for its own publishers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_topic::{Position, ProducerMark, PublishError, Receipt};
use dunlin_wire::{
    ExpectTopic, FLAG_ACK, FLAG_EXPECT, FromClient, LastAcknowledged, List, NO_PRODUCER, OpenPublisher,
    PublishHeader, PublishRefused, Published, RUN_HEAD_BYTES, Refusal, publish_head,
};

use crate::client::{Client, SharedClient};
use crate::follow::lock;
use crate::link::{PumpOutcome, PumpWait};
use crate::publishing::receipt;
use crate::refusal::publish_error;

/// The number of bytes reserved for the expectations that a batch may have.
const EXPECT_BYTES: usize = 64;

/// The outcome of a forwarded batch: it was appended, it was not accepted, or its outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayOutcome {
    /// The node's response.
    Answered(Result<Receipt, PublishError>),
    /// The batch was not sent, or the node did not accept it: nothing was appended.
    NotTaken(String),
    /// The batch was sent, and the connection ended before the response.
    Lost,
}

/// A function that receives the outcome of a relayed batch, on the connection's or the sender's thread.
pub type RelayCallback = Box<dyn FnOnce(RelayOutcome) + Send>;

/// Forwards batches of records of other publishers to one topic.
pub struct Relay {
    shared: Arc<SharedClient>,
    lane: Arc<RelayShared>,
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
    /// For each partition, the number of the next batch that has no producer's number.
    next: Vec<u64>,
    /// Batches that were sent and have no response yet.
    unanswered: VecDeque<UnansweredBatch>,
    /// The error with which the node refused this relay.
    refused: Option<PublishError>,
}

struct UnansweredBatch {
    partition: u32,
    first: u64,
    last: u64,
    told: RelayCallback,
}

/// A batch of records to forward, with its partition and its producer's sequence number.
#[derive(Debug, Clone, Copy)]
pub struct RelayBatch<'a> {
    /// The partition.
    pub partition: u32,
    /// The frames of the batch, complete and valid.
    pub frames: &'a [u8],
    /// The number of frames.
    pub count: u32,
    /// The producer's number of the first record, if the producer has a name.
    pub producer_seq: Option<u64>,
    /// If set: append only if the log's last record has this sequence number.
    pub expect_last: Option<u64>,
    /// For a topic with a state: the position of the publisher's last acknowledged record. The owner refuses
    /// the batch if it has lost that record.
    pub after: Option<Position>,
}

impl Client {
    /// Makes a relay to the topic with exactly this pattern.
    pub fn relay(&self, pattern: &str, mark: Option<ProducerMark>) -> Relay {
        let mut session = lock(&self.shared.session);
        let lane = Arc::new(RelayShared {
            number: session.number(),
            subject: pattern.to_owned(),
            producer: mark.map_or(NO_PRODUCER, |mark| mark.producer),
            producer_epoch: mark.map_or(0, |mark| mark.producer_epoch),
            state: Mutex::default(),
        });
        let mut out = Vec::new();
        lane.open(&mut out);
        session.add_relay(Arc::clone(&lane));
        self.shared.outbox.write(&out);
        Relay { shared: Arc::clone(&self.shared), lane }
    }

    /// Sends and receives on the connection for about `longest`. Returns whether anything arrived.
    pub fn pump(&self, longest: Duration) -> bool {
        let Ok(mut link) = self.shared.link.try_lock() else { return false };
        let pumped = link.pump(&self.shared, PumpWait::Block(longest));
        drop(link);
        self.shared.followers.thread_left();
        self.shared.outbox.flush();
        matches!(pumped, PumpOutcome::Heard)
    }

    /// Whether bytes wait to be written to the socket.
    pub fn has_unsent(&self) -> bool {
        !self.shared.outbox.is_empty()
    }
}

impl Relay {
    /// Sends a batch. The callback receives the outcome later, or at once without a connection.
    pub fn send(&self, run: RelayBatch<'_>, told: RelayCallback) {
        let mut state = self.lane.state();
        if let Some(refused) = &state.refused {
            let refused = refused.clone();
            drop(state);
            return told(RelayOutcome::Answered(Err(refused)));
        }
        let partition = run.partition as usize;
        if state.next.len() <= partition {
            state.next.resize(partition + 1, 1);
        }
        let producer_seq = run.producer_seq.unwrap_or(state.next[partition]);
        state.next[partition] = producer_seq + u64::from(run.count);
        let header = PublishHeader {
            publisher: self.lane.number,
            partition: run.partition,
            expect_seq: run.expect_last.unwrap_or(0),
            producer_seq,
            count: run.count,
            bytes: run.frames.len() as u32,
        };
        let flags = FLAG_ACK | if run.expect_last.is_some() { FLAG_EXPECT } else { 0 };
        let mut bytes = Vec::with_capacity(EXPECT_BYTES + RUN_HEAD_BYTES + run.frames.len());
        if let Some(Position { epoch, seq }) = run.after {
            let position = dunlin_wire::Position { epoch, seq };
            let last = [LastAcknowledged { partition: run.partition as u16, position }];
            let (publisher, acknowledged) = (self.lane.number, List::new(&last));
            FromClient::ExpectTopic(ExpectTopic { publisher, create: false, acknowledged })
                .encode(&mut bytes);
        }
        bytes.extend_from_slice(&publish_head(&header, flags));
        bytes.extend_from_slice(run.frames);
        if !self.shared.outbox.write(&bytes) {
            drop(state);
            return told(RelayOutcome::NotTaken("no connection to the node".to_owned()));
        }
        let (partition, last) = (run.partition, header.last_producer_seq());
        state.unanswered.push_back(UnansweredBatch { partition, first: producer_seq, last, told });
    }

    /// Whether the node refuses batches of this relay.
    pub fn is_refused(&self) -> bool {
        self.lane.state().refused.is_some()
    }

    /// Whether a batch has no response yet.
    pub fn has_unanswered(&self) -> bool {
        !self.lane.state().unanswered.is_empty()
    }
}

impl RelayShared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn open(&self, out: &mut Vec<u8>) {
        let (publisher, producer, producer_epoch) = (self.number, self.producer, self.producer_epoch);
        let subject = &self.subject;
        FromClient::OpenPublisher(OpenPublisher { publisher, producer, producer_epoch, subject }).encode(out);
    }

    fn lose(&self) {
        let lost = {
            let mut state = self.state();
            state.next.clear();
            std::mem::take(&mut state.unanswered)
        };
        lost.into_iter().for_each(|sent| (sent.told)(RelayOutcome::Lost));
    }

    /// Handles a new connection: batches sent on the previous connection are lost.
    pub(crate) fn resume(&self, out: &mut Vec<u8>) {
        self.lose();
        self.state().refused = None;
        self.open(out);
    }

    pub(crate) fn refused(&self, refusal: &Refusal<'_>) {
        let error = publish_error(refusal);
        let lost = {
            let mut state = self.state();
            state.refused = Some(error.clone());
            std::mem::take(&mut state.unanswered)
        };
        lost.into_iter().for_each(|sent| (sent.told)(RelayOutcome::Answered(Err(error.clone()))));
    }

    pub(crate) fn published(&self, published: &Published) {
        let answered = {
            let mut state = self.state();
            let through = |sent: &UnansweredBatch| {
                sent.partition == published.partition && sent.last <= published.through
            };
            let at = state.unanswered.iter().position(through);
            at.and_then(|at| state.unanswered.remove(at))
        };
        if let Some(sent) = answered {
            (sent.told)(RelayOutcome::Answered(Ok(receipt(published))));
        }
    }

    pub(crate) fn publish_refused(&self, refused: &PublishRefused<'_>) {
        let answered = {
            let mut state = self.state();
            let is_it = |sent: &UnansweredBatch| {
                sent.partition == refused.partition && sent.first == refused.producer_seq
            };
            let at = state.unanswered.iter().position(is_it);
            at.and_then(|at| state.unanswered.remove(at))
        };
        if let Some(sent) = answered {
            (sent.told)(match publish_error(&refused.refusal) {
                PublishError::OwnerAway(why) => RelayOutcome::NotTaken(why),
                error => RelayOutcome::Answered(Err(error)),
            });
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        lock(&self.shared.session).remove_publisher(self.lane.number);
        let mut out = Vec::new();
        FromClient::ClosePublisher { publisher: self.lane.number }.encode(&mut out);
        self.shared.outbox.write(&out);
        self.lane.lose();
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lane.fmt(f)
    }
}

impl fmt::Debug for RelayShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relaying").field("subject", &self.subject).finish_non_exhaustive()
    }
}
