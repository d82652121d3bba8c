//! Serves `MessageBroker`, the gRPC service of the message broker Ratatoskr: nine calls, with Ratatoskr's names, limits
//! and error texts.
//!
//! A message's id is its position, `topic/partition/epoch-seq`; publishers and subscribers receive the same id.
//! Ratatoskr's interface has no message for a gap. If a stream misses messages, it therefore ends with `DATA_LOSS` and
//! the number of missed messages.

mod messages;
mod subscriptions;

use std::sync::Arc;
use std::time::Duration;

use dunlin::topic::{OnGap, Start, SubscribeOptions, Topic, WaitStrategy};
use dunlin::wire::ErrorCode;
use dunlin::{Refused, TopicError, now_ns};
use rata::message_broker_server::MessageBroker;
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status};

use super::append::{IncomingRecord, publish};
use super::calls::calls;
use super::connection::GrpcConnection;
use super::delivery::SubscriptionBody;
use super::proto::{dunlin as v1, ratatoskr as rata};
use super::subscribe as dunlin_subscribe;
use crate::access::pause;
use crate::figures::TopicFigures;
use messages::{MessageWriter, message_id};
pub(super) use subscriptions::MessageSubscriptions;

/// The metadata key under which the node sends a subscription's reference. The client unsubscribes with this reference.
pub(super) const REFERENCE: &str = "subscription-ref";
const NAME_BYTES_MAX: usize = 255;
const BATCH_BYTES: usize = 32 << 10;

#[derive(Debug, Clone)]
pub(super) struct Ratatoskr(pub(super) Arc<GrpcConnection>);

impl Ratatoskr {
    fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        check_name(name).ok().and_then(|()| self.0.node.topic(name))
    }

    async fn publish_message(
        &self,
        topic: &str,
        message: rata::PublishRequest,
    ) -> Result<rata::PublishResponse, PublishFailure> {
        check_name(topic)?;
        let headers = message.metadata.into_iter();
        let headers = headers.map(|(name, value)| v1::Header { name, value: value.into() }).collect();
        let record = v1::Draft { payload: message.payload, headers, ..v1::Draft::default() };
        let incoming = IncomingRecord { record: &record, mark: None, expect_last: None, after: None };
        let (found, receipt) = publish(&self.0, topic, incoming).await?;
        let log = &found.logs()[usize::from(receipt.partition)];
        let appended_ns = log.read(receipt.position.seq, |record| record.frame.append_time_ns());
        Ok(rata::PublishResponse {
            message_id: message_id(log.name(), receipt.position),
            timestamp: ms(appended_ns.unwrap_or_else(now_ns)),
            success: true,
            error: String::new(),
        })
    }
}

/// The reason why a message was not published.
#[derive(Debug)]
struct PublishFailure {
    error: String,
    /// How long the node delays its response, because the client exceeded its publish rate.
    pause: Option<Duration>,
}

impl PublishFailure {
    fn into_response(self) -> rata::PublishResponse {
        rata::PublishResponse { error: self.error, ..rata::PublishResponse::default() }
    }
}

impl From<Refused> for PublishFailure {
    fn from(refused: Refused) -> PublishFailure {
        PublishFailure { error: error_name(&refused), pause: pause(&refused) }
    }
}

impl From<String> for PublishFailure {
    fn from(error: String) -> PublishFailure {
        PublishFailure { error, pause: None }
    }
}

calls! {
    MessageBroker for Ratatoskr {
        create_topic(rata::CreateTopicRequest) -> rata::CreateTopicResponse;
        delete_topic(rata::DeleteTopicRequest) -> rata::DeleteTopicResponse;
        list_topics(rata::ListTopicsRequest) -> rata::ListTopicsResponse;
        topic_exists(rata::TopicExistsRequest) -> rata::TopicExistsResponse;
        get_stats(rata::GetStatsRequest) -> rata::GetStatsResponse;
        publish(rata::PublishRequest) -> rata::PublishResponse;
        publish_batch(rata::PublishBatchRequest) -> rata::PublishBatchResponse;
        subscribe(rata::SubscribeRequest) -> std::pin::Pin<Box<dyn Stream<Item = Result<rata::Message, Status>> + Send>> as SubscribeStream;
        unsubscribe(rata::UnsubscribeRequest) -> rata::UnsubscribeResponse;
    }
}

impl Ratatoskr {
    async fn create_topic(
        self,
        request: Request<rata::CreateTopicRequest>,
    ) -> Result<Response<rata::CreateTopicResponse>, Status> {
        let topic = request.into_inner().name;
        let node = &self.0.node;
        let created = async {
            check_name(&topic)?;
            let created = node.create_topic_async(&topic, node.config().topic.clone(), false).await;
            created.map(drop).map_err(|error| match error {
                TopicError::Exists(_) | TopicError::Overlaps(_) => "already_exists".to_owned(),
                other => error_name(&Refused::from(&other)),
            })
        };
        let created = created.await;
        let (created, error) = success_and_error(created);
        Ok(Response::new(rata::CreateTopicResponse { topic, created, error }))
    }

    async fn delete_topic(
        self,
        request: Request<rata::DeleteTopicRequest>,
    ) -> Result<Response<rata::DeleteTopicResponse>, Status> {
        let name = request.into_inner().name;
        let deleted = self.0.node.delete_topic_async(&name).await;
        let (success, error) = success_and_error(deleted.map_err(|error| match error {
            TopicError::Name(_) => TOPIC_NOT_FOUND.to_owned(),
            other => error_name(&Refused::from(&other)),
        }));
        Ok(Response::new(rata::DeleteTopicResponse { success, error }))
    }

    async fn list_topics(
        self,
        _request: Request<rata::ListTopicsRequest>,
    ) -> Result<Response<rata::ListTopicsResponse>, Status> {
        let node = &self.0.node;
        let mut names: Vec<String> = Vec::new();
        let mut after = String::new();
        loop {
            let page = node.topics(None, &after, usize::MAX);
            let page_names = page.topics.iter().map(|topic| topic.name());
            // Leaves out topics whose names `MessageBroker` does not allow.
            names.extend(page_names.filter(|name| check_name(name).is_ok()).map(str::to_owned));
            match page.topics.last() {
                Some(last) if page.more => after = last.name().to_owned(),
                _ => return Ok(Response::new(rata::ListTopicsResponse { topics: names })),
            }
            // Lets other calls of the thread run before the next page.
            drop(page);
            tokio::task::yield_now().await;
        }
    }

    async fn topic_exists(
        self,
        request: Request<rata::TopicExistsRequest>,
    ) -> Result<Response<rata::TopicExistsResponse>, Status> {
        let exists = self.topic(&request.get_ref().name).is_some();
        Ok(Response::new(rata::TopicExistsResponse { exists }))
    }

    async fn get_stats(
        self,
        request: Request<rata::GetStatsRequest>,
    ) -> Result<Response<rata::GetStatsResponse>, Status> {
        let name = request.into_inner().topic;
        let Some(topic) = self.topic(&name) else {
            let error = TOPIC_NOT_FOUND.to_owned();
            return Ok(Response::new(rata::GetStatsResponse { topic: name, error, ..Default::default() }));
        };
        let shared = &self.0.shared;
        let figures = shared.figures_of(std::slice::from_ref(&topic)).await;
        let TopicFigures { owner: Some(owner), clients: Some(clients) } = figures.of(shared, &topic) else {
            let refused = Refused::new(
                ErrorCode::OwnerAway,
                "a node with figures of the topic does not respond; retry",
            );
            let error = error_name(&refused);
            return Ok(Response::new(rata::GetStatsResponse { topic: name, error, ..Default::default() }));
        };
        let messages = owner.appended();
        let subscribers = (clients.subscribers_total as usize).max(shared.grpc.subscriptions.count(&name));
        Ok(Response::new(rata::GetStatsResponse {
            topic: name,
            message_count: i64::try_from(messages).unwrap_or(i64::MAX),
            subscriber_count: i32::try_from(subscribers).unwrap_or(i32::MAX),
            error: String::new(),
        }))
    }

    async fn publish(
        self,
        request: Request<rata::PublishRequest>,
    ) -> Result<Response<rata::PublishResponse>, Status> {
        let mut request = request.into_inner();
        let topic = std::mem::take(&mut request.topic);
        let published = self.publish_message(&topic, request).await;
        if let Some(pause) = published.as_ref().err().and_then(|failure| failure.pause) {
            tokio::time::sleep(pause).await;
        }
        Ok(Response::new(published.unwrap_or_else(PublishFailure::into_response)))
    }

    async fn publish_batch(
        self,
        request: Request<rata::PublishBatchRequest>,
    ) -> Result<Response<rata::PublishBatchResponse>, Status> {
        let rata::PublishBatchRequest { topic, messages } = request.into_inner();
        let mut results = Vec::with_capacity(messages.len());
        let mut last_pause = None;
        for mut message in messages {
            let own = std::mem::take(&mut message.topic);
            let topic = if own.is_empty() { &topic } else { &own };
            let published = self.publish_message(topic, message).await;
            results.push(published.unwrap_or_else(|failure| {
                last_pause = failure.pause.or(last_pause);
                failure.into_response()
            }));
        }
        if let Some(pause) = last_pause {
            tokio::time::sleep(pause).await;
        }
        let success_count = results.iter().filter(|result| result.success).count() as i32;
        let error_count = results.len() as i32 - success_count;
        Ok(Response::new(rata::PublishBatchResponse { results, success_count, error_count }))
    }

    /// The trait requires this method, but it is never called: the free function [`subscribe`] serves these calls.
    async fn subscribe(
        self,
        _request: Request<rata::SubscribeRequest>,
    ) -> Result<Response<std::pin::Pin<Box<dyn Stream<Item = Result<rata::Message, Status>> + Send>>>, Status>
    {
        Err(Status::internal("internal error: Subscribe was routed to the wrong handler"))
    }

    async fn unsubscribe(
        self,
        request: Request<rata::UnsubscribeRequest>,
    ) -> Result<Response<rata::UnsubscribeResponse>, Status> {
        let rata::UnsubscribeRequest { topic, subscription_ref } = request.into_inner();
        let ended = if subscription_ref.is_empty() {
            Err("Invalid subscription reference".to_owned())
        } else if self.0.shared.grpc.subscriptions.end(self.0.user_name(), &topic, &subscription_ref) {
            Ok(())
        } else {
            Err("subscription_not_found".to_owned())
        };
        let (success, error) = success_and_error(ended);
        Ok(Response::new(rata::UnsubscribeResponse { success, error }))
    }
}

/// Starts a subscription. Returns the response's body, and the reference with which the client unsubscribes.
pub(super) async fn subscribe(
    connection: &Arc<GrpcConnection>,
    request: rata::SubscribeRequest,
) -> Result<(SubscriptionBody<MessageWriter>, String), Status> {
    let rata::SubscribeRequest { topic, subscriber_id } = request;
    check_name(&topic).map_err(Status::invalid_argument)?;
    let shared = &connection.shared;
    if connection.node.topic(&topic).is_none() {
        return Err(Status::not_found(TOPIC_NOT_FOUND));
    }
    let options = SubscribeOptions {
        name: subscriber_id.clone(),
        protocol: "grpc",
        start: Start::Latest,
        on_gap: OnGap::Fail,
        wait: WaitStrategy::Parked,
        ..SubscribeOptions::default()
    };
    let subjects = std::slice::from_ref(&topic);
    let reader = dunlin_subscribe::begin(connection, subjects, options, None, BATCH_BYTES)
        .await
        .map_err(|refused| super::status::status(&refused))?;
    let subscribers_max = shared.limits.grpc.message_subscribers_max;
    let subscription =
        shared.grpc.subscriptions.add(connection, &topic, &subscriber_id, reader.waiter(), subscribers_max);
    let Some(subscription) = subscription else {
        return Err(Status::new(Code::ResourceExhausted, "max_subscribers_reached"));
    };
    let reference = subscription.reference().to_owned();
    Ok((SubscriptionBody::new(reader, MessageWriter::new(topic, subscription)), reference))
}

const TOPIC_NOT_FOUND: &str = "topic_not_found";

/// Checks that a topic's name follows Ratatoskr's rules.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() {
        Err("empty_topic".to_owned())
    } else if name.len() > NAME_BYTES_MAX {
        Err("topic_too_long".to_owned())
    } else if !name.bytes().all(fits) {
        Err("invalid_topic_format".to_owned())
    } else {
        Ok(())
    }
}

/// The text that Ratatoskr's interface has for this refusal.
fn error_name(refused: &Refused) -> String {
    match refused.code {
        ErrorCode::NoTopic | ErrorCode::Closed => TOPIC_NOT_FOUND.to_owned(),
        ErrorCode::Full | ErrorCode::DiskBehind | ErrorCode::OwnerBehind => {
            format!("topic_timeout: {}", refused.as_wire())
        }
        ErrorCode::BadFrame | ErrorCode::RecordTooLarge => {
            format!("payload_not_serializable: {}", refused.as_wire())
        }
        _ => refused.as_wire().to_string(),
    }
}

fn success_and_error(outcome: Result<(), String>) -> (bool, String) {
    (outcome.is_ok(), outcome.err().unwrap_or_default())
}

fn ms(ns: u64) -> i64 {
    (ns / 1_000_000) as i64
}
