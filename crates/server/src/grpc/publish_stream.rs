//! Serves the calls in which a client publishes a stream of records. The records that have arrived are appended, and
//! are stored if the topic requires it. One response then acknowledges all of them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin::Refused;
use dunlin::topic::{AckLevel, Position, ProducerMark, Receipt, Topic, Waiter};
use dunlin::wire::ErrorCode;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::append::{IncomingRecord, PublishTarget, append, publish_to_next, wait_until_stored};
use super::connection::{GrpcConnection, StreamRegistration};
use super::proto::dunlin as v1;
use super::status::{refusal, status, with_protocol_code};
use super::translate;
use super::unfold::unfold;
use crate::access::{Admission, pause};
use crate::append::with_epoch_change;
use crate::shared::STOP;
use v1::publish_stream_response::RefusedRecord;

/// Maximum number of messages that one response acknowledges.
const MESSAGES_MAX: usize = 64;
/// A response acknowledges no further messages once its forwarded records have this many bytes of payload.
const FORWARDED_BYTES_MAX: usize = 1 << 20;

struct PublishStreamState {
    connection: Arc<GrpcConnection>,
    messages: Streaming<v1::PublishStreamRequest>,
    waiter: Arc<Waiter>,
    /// The current subject's topic, or the reason why the stream cannot publish to it; `None` before the first subject.
    target: Option<Result<PublishTarget, Refused>>,
    /// The current subject, by which the topic was found.
    subject: String,
    admission: Option<Admission>,
    /// Whether the users file may have changed since the topic was found.
    is_stale: bool,
    /// The producer and the number of the next record, or the reason why the client's producer is refused; `Ok(None)`
    /// without a producer.
    mark: Result<Option<ProducerMark>, Refused>,
    /// The publisher's last record of this subject and partition: at first the position that the client stated, later
    /// the last acknowledged record.
    after: Option<Position>,
    /// Number of records received so far.
    count: u64,
    is_over: bool,
    /// The error that ends the stream after the pending responses.
    failed: Option<Status>,
    _registration: StreamRegistration,
}

/// The outcome of the messages that one response acknowledges.
#[derive(Default)]
struct BatchOutcome {
    last: Option<(Arc<Topic>, Receipt)>,
    /// The newest record that is known to be stored, with its topic. The response names this record if the last record
    /// was not stored.
    confirmed: Option<(Arc<Topic>, Receipt)>,
    /// Records that must be stored before the response is sent.
    unstored: Vec<UnstoredRecords>,
    /// Total size of the payloads of the forwarded records in `unstored`, bytes.
    forwarded_bytes: usize,
    refused: Vec<RefusedRecord>,
    /// How long the response is delayed because the user exceeds the publish rate.
    pause: Option<Duration>,
}

/// Records of one log that must be stored before the response, or one record that was forwarded to the log's owner.
struct UnstoredRecords {
    topic: Arc<Topic>,
    /// The receipt of the last record.
    receipt: Receipt,
    /// The numbers that the records have in the stream.
    indexes: Vec<u64>,
    /// The record, if it was forwarded to the log's owner. If the topic is deleted meanwhile, the record goes to the
    /// topic that owns the subject afterwards.
    forwarded: Option<ForwardedRecord>,
}

/// A record that was forwarded to the owner of its topic.
struct ForwardedRecord {
    subject: String,
    record: v1::Draft,
    mark: Option<ProducerMark>,
    after: Option<Position>,
}

pub(super) fn responses(
    connection: &Arc<GrpcConnection>,
    messages: Streaming<v1::PublishStreamRequest>,
) -> Result<impl Stream<Item = Result<v1::PublishStreamResponse, Status>> + Send + use<>, Refused> {
    let waiter = Waiter::new();
    let state = PublishStreamState {
        connection: Arc::clone(connection),
        messages,
        _registration: connection.register_stream(&waiter)?,
        waiter,
        target: None,
        subject: String::new(),
        admission: connection.login.as_ref().map(Admission::of),
        is_stale: false,
        mark: Ok(None),
        after: None,
        count: 0,
        is_over: false,
        failed: None,
    };
    Ok(unfold(state, PublishStreamState::step))
}

impl PublishStreamState {
    async fn step(mut self) -> Option<(Result<v1::PublishStreamResponse, Status>, PublishStreamState)> {
        if self.is_over {
            return self.failed.take().map(|status| (Err(status), self));
        }
        let response = match std::future::poll_fn(|cx| self.poll_message(cx)).await {
            Ok(Some(first)) => self.handle_messages(first).await,
            Ok(None) => return None,
            Err(status) => Err(status),
        };
        self.is_over |= response.is_err();
        Some((response, self))
    }

    /// Handles the messages that have arrived, and returns the response.
    async fn handle_messages(
        &mut self,
        first: v1::PublishStreamRequest,
    ) -> Result<v1::PublishStreamResponse, Status> {
        let mut outcome = BatchOutcome::default();
        let mut message = first;
        for taken in 1.. {
            self.handle(message, &mut outcome).await;
            if taken == MESSAGES_MAX || outcome.forwarded_bytes >= FORWARDED_BYTES_MAX {
                break;
            }
            match std::future::poll_fn(|cx| Poll::Ready(self.poll_message(cx))).await {
                Poll::Ready(Ok(Some(next))) => message = next,
                Poll::Pending => break,
                Poll::Ready(end) => {
                    self.is_over = true;
                    self.failed = end.err();
                    break;
                }
            }
        }
        if let Some(pause) = outcome.pause {
            tokio::time::sleep(pause).await;
        }
        outcome.settle(&self.connection).await;
        outcome.refused.sort_by_key(|refused| refused.index);
        let last = outcome.last.or(outcome.confirmed).map(|(topic, receipt)| {
            let receipt = with_epoch_change(receipt, self.after);
            self.after = self.after.map(|_| receipt.position);
            translate::receipt(&topic, &receipt)
        });
        Ok(v1::PublishStreamResponse { through: self.count, last, refused: outcome.refused })
    }

    /// Fails if the user lost access.
    fn check_user(&mut self) -> Result<(), Refused> {
        if let Some(admission) = &mut self.admission {
            self.is_stale |= admission.check()?;
        }
        Ok(())
    }

    async fn handle(&mut self, message: v1::PublishStreamRequest, outcome: &mut BatchOutcome) {
        if !message.subject.is_empty() {
            self.subject.clone_from(&message.subject);
        }
        let is_stale = std::mem::take(&mut self.is_stale);
        if let Some(last) = message.last_position {
            self.after = Some(translate::last_position(last));
        }
        if !message.subject.is_empty() || is_stale && !self.subject.is_empty() {
            let first = message.records.first().map_or(&[][..], |record| &record.payload);
            let found = PublishTarget::find(&self.connection, &self.subject, first, self.after).await;
            self.target = Some(found);
        }
        if let Some(producer) = message.producer {
            self.mark = self.connection.mark(producer).map(Some);
        }
        for record in &message.records {
            let mut appended = match &self.target {
                Some(Ok(target)) => {
                    match (self.mark.clone(), self.connection.admit_publish(record.payload.len())) {
                        (Ok(mark), Ok(())) => {
                            let incoming =
                                IncomingRecord { record, mark, expect_last: None, after: self.after };
                            append(target, incoming).await
                        }
                        (Err(refused), _) | (_, Err(refused)) => Err(refused),
                    }
                }
                // Refuses each record with the reason for which the topic was refused, until the client names another
                // subject.
                Some(Err(refused)) => Err(refused.clone()),
                None => Err(Refused::new(
                    ErrorCode::Subject,
                    "the stream has no subject yet; set subject in the first message",
                )),
            };
            let (mark, after) = (self.mark.as_ref().ok().copied().flatten(), self.after);
            if appended.as_ref().is_err_and(|refused| refused.code == ErrorCode::Closed) {
                // The topic was deleted. If the topic's owner has refused earlier records, these are published to the
                // subject's next topic before this record.
                outcome.settle(&self.connection).await;
                let found =
                    PublishTarget::find(&self.connection, &self.subject, &record.payload, after).await;
                appended = match &found {
                    Ok(target) => {
                        append(target, IncomingRecord { record, mark, expect_last: None, after }).await
                    }
                    Err(refused) => Err(refused.clone()),
                };
                self.target = Some(found);
            }
            match (appended, &self.target) {
                (Ok(receipt), Some(Ok(target))) => {
                    self.connection.record_publish(&target.topic);
                    let forwarded = (receipt.acknowledged == AckLevel::ByOwner).then(|| ForwardedRecord {
                        subject: self.subject.clone(),
                        record: record.clone(),
                        mark,
                        after,
                    });
                    outcome.appended(&target.topic, receipt, self.count, forwarded);
                }
                (Ok(_), _) => {}
                (Err(refused), _) => {
                    outcome.pause = pause(&refused).or(outcome.pause);
                    outcome.refused.push(refused_record(self.count, &refused));
                }
            }
            self.count += 1;
            if let Ok(Some(mark)) = &mut self.mark {
                // The producer's number stops at `u64::MAX`. The log refuses records with this number, so no number is
                // used twice.
                mark.producer_seq = mark.producer_seq.saturating_add(1);
            }
        }
    }

    /// The next message; `None` when the client has ended its stream.
    fn poll_message(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<v1::PublishStreamRequest>, Status>> {
        loop {
            let mut stop = false;
            self.waiter.take_ready(|token| stop |= token == STOP);
            if stop {
                return Poll::Ready(Err(status(&Refused::new(ErrorCode::ShuttingDown, ""))));
            }
            // Access is checked before each message, and when the stream is woken because the users file changed.
            self.check_user().map_err(|refused| status(&refused))?;
            if let Poll::Ready(next) = Pin::new(&mut self.messages).poll_next(cx) {
                return Poll::Ready(next.transpose().map_err(with_protocol_code));
            }
            if self.waiter.set_waker(cx.waker()) {
                return Poll::Pending;
            }
        }
    }
}

fn refused_record(index: u64, refused: &Refused) -> RefusedRecord {
    RefusedRecord { index, refusal: Some(refusal(refused)) }
}

impl ForwardedRecord {
    async fn publish_to_next(
        &self,
        connection: &Arc<GrpcConnection>,
    ) -> Result<(Arc<Topic>, Receipt), Refused> {
        let ForwardedRecord { subject, record, mark, after } = self;
        let incoming = IncomingRecord { record, mark: *mark, expect_last: None, after: *after };
        let (topic, receipt) = publish_to_next(connection, subject, incoming).await?;
        let topic: &Arc<Topic> = &topic;
        Ok((Arc::clone(topic), receipt))
    }
}

impl BatchOutcome {
    /// Waits until the records are stored. If the topic of a forwarded record was deleted, publishes the record to the
    /// topic that owns the subject now.
    async fn settle(&mut self, connection: &Arc<GrpcConnection>) {
        self.forwarded_bytes = 0;
        for unstored in std::mem::take(&mut self.unstored) {
            let UnstoredRecords { topic, receipt: sent, indexes, forwarded } = unstored;
            let is_last = self.last.as_ref().is_some_and(|(_, last)| *last == sent);
            let mut stored = wait_until_stored(&topic, &sent).await.map(|receipt| (topic, receipt));
            if let Some(forwarded) = forwarded
                && stored.as_ref().is_err_and(|refused| refused.code == ErrorCode::Closed)
            {
                stored = forwarded.publish_to_next(connection).await;
            }
            match stored {
                Ok(stored) if is_last => self.last = Some(stored),
                Ok(stored) => self.confirmed = Some(stored),
                Err(refused) => {
                    // The response lists all records of `indexes` as refused, and the stream continues.
                    self.refused.extend(indexes.iter().map(|&index| refused_record(index, &refused)));
                    if is_last {
                        self.last = None;
                    }
                }
            }
        }
    }

    fn appended(
        &mut self,
        topic: &Arc<Topic>,
        receipt: Receipt,
        index: u64,
        forwarded: Option<ForwardedRecord>,
    ) {
        self.forwarded_bytes += forwarded.as_ref().map_or(0, |forwarded| forwarded.record.payload.len());
        if receipt.acknowledged != AckLevel::Memory {
            let is_same_log = |unstored: &&mut UnstoredRecords| {
                let last = &unstored.receipt;
                // A record that is forwarded to the topic's owner has its own outcome, and is not combined with other
                // records.
                receipt.acknowledged != AckLevel::ByOwner
                    && Arc::ptr_eq(&unstored.topic, topic)
                    && (last.partition, last.acknowledged) == (receipt.partition, receipt.acknowledged)
            };
            match self.unstored.iter_mut().find(is_same_log) {
                Some(unstored) => {
                    unstored.receipt = receipt;
                    unstored.indexes.push(index);
                }
                None => {
                    let topic = Arc::clone(topic);
                    self.unstored.push(UnstoredRecords { topic, receipt, indexes: vec![index], forwarded });
                }
            }
        }
        match &mut self.last {
            Some((last_topic, last)) if Arc::ptr_eq(last_topic, topic) => *last = receipt,
            last => *last = Some((Arc::clone(topic), receipt)),
        }
    }
}
