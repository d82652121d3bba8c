//! The calls of `dunlin.v1.Dunlin`, except for `Subscribe`.

use std::pin::Pin;
use std::sync::Arc;

use dunlin::wire::ErrorCode;
use dunlin::{Refused, now_ns};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};
use v1::dunlin_server::Dunlin;
use v1::publish_outcome::Outcome;

use super::append::{IncomingRecord, PublishTarget, append, publish, publish_to_next, wait_until_stored};
use super::calls::calls;
use super::connection::GrpcConnection;
use super::groups;
use super::proto::dunlin as v1;
use super::publish_stream;
use super::status::{refusal, status};
use super::{requests, topics, translate};
use crate::access::{pause, slow_down};
use crate::append::with_epoch_change;

/// The stream of responses in a bidirectional call.
type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The gRPC service for topics, for one connection.
#[derive(Debug, Clone)]
pub(super) struct DunlinService(pub(super) Arc<GrpcConnection>);

calls! {
    Dunlin for DunlinService {
        create_topic(v1::CreateTopicRequest) -> v1::CreateTopicResponse;
        delete_topic(v1::DeleteTopicRequest) -> v1::DeleteTopicResponse;
        list_topics(v1::ListTopicsRequest) -> v1::ListTopicsResponse;
        describe_topic(v1::DescribeTopicRequest) -> v1::DescribeTopicResponse;
        get_stats(v1::GetStatsRequest) -> v1::GetStatsResponse;
        publish(v1::PublishRequest) -> v1::PublishResponse;
        publish_batch(v1::PublishBatchRequest) -> v1::PublishBatchResponse;
        publish_stream(Streaming<v1::PublishStreamRequest>) -> ResponseStream<v1::PublishStreamResponse> as PublishStreamStream;
        subscribe(v1::SubscribeRequest) -> ResponseStream<v1::SubscribeResponse> as SubscribeStream;
        join_group(Streaming<v1::JoinGroupRequest>) -> ResponseStream<v1::JoinGroupResponse> as JoinGroupStream;
        request(v1::RequestRequest) -> v1::RequestResponse;
    }
}

impl DunlinService {
    async fn create_topic(
        self,
        request: Request<v1::CreateTopicRequest>,
    ) -> Result<Response<v1::CreateTopicResponse>, Status> {
        let created = topics::create(&self.0.node, request.get_ref()).await;
        response(created.map(|()| v1::CreateTopicResponse {}))
    }

    async fn delete_topic(
        self,
        request: Request<v1::DeleteTopicRequest>,
    ) -> Result<Response<v1::DeleteTopicResponse>, Status> {
        let deleted = self.0.node.delete_topic_async(&request.get_ref().name).await;
        response(deleted.map(|()| v1::DeleteTopicResponse {}).map_err(|error| Refused::from(&error)))
    }

    async fn list_topics(
        self,
        request: Request<v1::ListTopicsRequest>,
    ) -> Result<Response<v1::ListTopicsResponse>, Status> {
        response(topics::list(&self.0.shared, &self.0.node, request.get_ref()).await)
    }

    async fn describe_topic(
        self,
        request: Request<v1::DescribeTopicRequest>,
    ) -> Result<Response<v1::DescribeTopicResponse>, Status> {
        response(topics::describe(&self.0.shared, &self.0.node, &request.get_ref().name).await)
    }

    async fn get_stats(
        self,
        _request: Request<v1::GetStatsRequest>,
    ) -> Result<Response<v1::GetStatsResponse>, Status> {
        let shared = &self.0.shared;
        let (node, budget) = (&shared.node, shared.node.budget());
        response(self.0.node.may_survey_node().map(|()| v1::GetStatsResponse {
            name: node.config().name.clone(),
            node: node.id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            memory_used_bytes: budget.used(),
            memory_max_bytes: budget.limit(),
            sessions: shared.session_count() as u64,
            now_ns: now_ns(),
            cluster: shared.cluster_id().unwrap_or_default().to_owned(),
        }))
    }

    async fn publish(
        self,
        request: Request<v1::PublishRequest>,
    ) -> Result<Response<v1::PublishResponse>, Status> {
        let request = request.into_inner();
        let published = slow_down(publish_record(&self.0, &request).await).await;
        response(published.map(|receipt| v1::PublishResponse { receipt: Some(receipt) }))
    }

    async fn publish_batch(
        self,
        request: Request<v1::PublishBatchRequest>,
    ) -> Result<Response<v1::PublishBatchResponse>, Status> {
        let requests = request.into_inner().requests;
        let mut appended = Vec::with_capacity(requests.len());
        let mut last: Option<(&str, Arc<PublishTarget>)> = None;
        for request in &requests {
            let outcome = async {
                let incoming = incoming(&self.0, request)?;
                let target = match &last {
                    Some((subject, target)) if *subject == request.subject => Arc::clone(target),
                    _ => {
                        let payload = &incoming.record.payload;
                        let found =
                            PublishTarget::find(&self.0, &request.subject, payload, incoming.after).await?;
                        Arc::new(found)
                    }
                };
                last = Some((&request.subject, Arc::clone(&target)));
                self.0.admit_publish(incoming.record.payload.len())?;
                let receipt = append(&target, incoming).await?;
                self.0.record_publish(&target.topic);
                Ok((Arc::clone(&target.topic), receipt, incoming.after))
            };
            appended.push(outcome.await);
        }
        let mut outcomes = Vec::with_capacity(appended.len());
        if let Some(pause) = appended.iter().find_map(|outcome| outcome.as_ref().err().and_then(pause)) {
            tokio::time::sleep(pause).await;
        }
        for (outcome, request) in appended.into_iter().zip(&requests) {
            let outcome = match outcome {
                Ok((topic, receipt, after)) => wait_until_stored(&topic, &receipt)
                    .await
                    .map(|receipt| translate::receipt(&topic, &with_epoch_change(receipt, after))),
                Err(refused) => Err(refused),
            };
            let outcome = match outcome {
                // The topic was deleted after it was found.
                Err(refused) if refused.code == ErrorCode::Closed => {
                    publish_record_to_next(&self.0, request).await
                }
                outcome => outcome,
            };
            let outcome = match outcome {
                Ok(receipt) => Outcome::Receipt(receipt),
                Err(refused) => Outcome::Refusal(refusal(&refused)),
            };
            outcomes.push(v1::PublishOutcome { outcome: Some(outcome) });
        }
        response(Ok(v1::PublishBatchResponse { outcomes }))
    }

    async fn publish_stream(
        self,
        request: Request<Streaming<v1::PublishStreamRequest>>,
    ) -> Result<Response<ResponseStream<v1::PublishStreamResponse>>, Status> {
        let responses = publish_stream::responses(&self.0, request.into_inner());
        response(responses.map(|responses| Box::pin(responses) as ResponseStream<v1::PublishStreamResponse>))
    }

    /// The trait requires this method, but it is never called: [`SubscriptionBody`](super::delivery::SubscriptionBody)
    /// serves these calls.
    async fn subscribe(
        self,
        _request: Request<v1::SubscribeRequest>,
    ) -> Result<Response<ResponseStream<v1::SubscribeResponse>>, Status> {
        Err(status(&Refused::new(
            ErrorCode::Internal,
            "internal error: Subscribe was routed to the wrong handler",
        )))
    }

    async fn join_group(
        self,
        request: Request<Streaming<v1::JoinGroupRequest>>,
    ) -> Result<Response<ResponseStream<v1::JoinGroupResponse>>, Status> {
        let membership = groups::join(&self.0, request.into_inner()).await?;
        Ok(Response::new(Box::pin(membership)))
    }

    async fn request(
        self,
        request: Request<v1::RequestRequest>,
    ) -> Result<Response<v1::RequestResponse>, Status> {
        response(slow_down(requests::request(&self.0, request.into_inner()).await).await)
    }
}

async fn publish_record(
    connection: &Arc<GrpcConnection>,
    request: &v1::PublishRequest,
) -> Result<v1::Receipt, Refused> {
    let incoming = incoming(connection, request)?;
    let (topic, receipt) = publish(connection, &request.subject, incoming).await?;
    Ok(translate::receipt(&topic, &receipt))
}

async fn publish_record_to_next(
    connection: &Arc<GrpcConnection>,
    request: &v1::PublishRequest,
) -> Result<v1::Receipt, Refused> {
    let incoming = incoming(connection, request)?;
    let (topic, receipt) = publish_to_next(connection, &request.subject, incoming).await?;
    Ok(translate::receipt(&topic, &receipt))
}

fn incoming<'a>(
    connection: &GrpcConnection,
    request: &'a v1::PublishRequest,
) -> Result<IncomingRecord<'a>, Refused> {
    let record = request.record.as_ref();
    let record = record.ok_or_else(|| Refused::new(ErrorCode::BadFrame, "the request has no record"))?;
    let mark = request.producer.map(|producer| connection.mark(producer)).transpose()?;
    Ok(IncomingRecord {
        record,
        mark,
        expect_last: request.expect_last_seq,
        after: request.last_position.map(translate::last_position),
    })
}

fn response<T>(outcome: Result<T, Refused>) -> Result<Response<T>, Status> {
    outcome.map(Response::new).map_err(|refused| status(&refused))
}
