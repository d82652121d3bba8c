//! A subscription over a WebSocket with JSON. Each event of `GET /v1/topics/{pattern}/events?as=json` is sent as a JSON
//! object.
//!
//! Invariant: between two calls, the subscription holds no segment of a log, and all records that it has read were
//! added to the output.

use std::task::{Context as TaskContext, Poll};

use dunlin::Refused;
use dunlin::topic::{Event, MemoryCharge, Notice, Subscribe, SubscribeError, Subscriber};
use dunlin::wire::http::RESUME_LOGS_MAX;
use serde_json::{Map, Value, json};

use super::client_message;
use crate::access::SubscriptionAccess;
use crate::http::context::Context;
use crate::http::events::SubscriberIdentity;
use crate::http::events::format::{RecordFormat, notice_event, position_after, record_object};
use crate::http::events::request::{EventsRequest, RawEventsRequest};
use crate::http::events::stream_positions::StreamPositions;
use crate::http::events::subscribe::{EventSubscription, LOGS_MAX, subscribe};
use crate::http::problem::Problem;
use crate::protocol::Protocol;

#[derive(Debug)]
pub(super) struct SocketSubscription {
    id: u64,
    subscriber: Subscriber,
    stream_positions: StreamPositions,
    validity: Option<SubscriptionAccess>,
    pub(super) identity: SubscriberIdentity,
    /// Memory that is charged for the subscription until this field is dropped.
    _charge: MemoryCharge,
}

impl SocketSubscription {
    /// Starts a subscription, and adds its first message to `out`.
    pub(super) async fn begin(
        context: &Context,
        message: &client_message::Subscribe,
        client: &str,
        out: &mut Vec<String>,
    ) -> Result<SocketSubscription, Problem> {
        let peer = context.peer();
        let named = message.name.as_deref().filter(|name| !name.is_empty());
        let request = EventsRequest::of(&RawEventsRequest {
            from: message.from.as_deref(),
            on_gap: message.on_gap.as_deref(),
            conflate: message.conflate,
            name: named.unwrap_or(if client.is_empty() { &peer } else { client }),
            resume: message.resume.as_deref().filter(|text| !text.is_empty()),
            format: RecordFormat::Json,
            protocol: Protocol::Ws,
        })?;
        let validity = context.login().map(SubscriptionAccess::of);
        let identity = SubscriberIdentity {
            protocol: Protocol::Ws,
            name: request.options.name.clone(),
            peer: context.peer_address(),
        };
        let EventSubscription { subscriber, stream_positions, deleted_logs, charge } =
            subscribe(context, &message.pattern, &request).await?;
        let mut subscription = SocketSubscription {
            id: message.id,
            subscriber,
            stream_positions,
            validity,
            identity,
            _charge: charge,
        };
        let mut object = Map::new();
        if deleted_logs > 0 {
            object.insert("gone".to_owned(), deleted_logs.into());
        }
        subscription.push_message("subscribed", object, true, out);
        Ok(subscription)
    }

    /// Returns `Ready` when there may be an event to read, and an error when the subscription has ended.
    pub(super) fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), SubscribeError>> {
        self.subscriber.poll_ready(cx)
    }

    /// Reads records and notices, and adds about `bytes_max` bytes of messages to `out`.
    pub(super) fn fill(&mut self, bytes_max: usize, out: &mut Vec<String>) -> Result<(), Problem> {
        let read = self.read(bytes_max, out);
        let _ = self.subscriber.drain(0, |_| ());
        read
    }

    /// Fails if the user has lost the permission to read.
    pub(super) fn check(&mut self) -> Result<(), Refused> {
        self.validity.as_mut().map_or(Ok(()), SubscriptionAccess::check)
    }

    fn read(&mut self, bytes_max: usize, out: &mut Vec<String>) -> Result<(), Problem> {
        self.check()?;
        let mut bytes = 0;
        while bytes < bytes_max {
            let (op, object) = match self.subscriber.try_next()? {
                Some(Event::Record(record)) => {
                    self.stream_positions.advance(record.log, record.position);
                    ("record", record_object(&record))
                }
                Some(Event::Notice(notice)) => {
                    let Some(notice) = self.notice_message(&notice) else { continue };
                    notice
                }
                None => break,
            };
            self.push_message(op, object, self.stream_positions.is_single_log(), out);
            bytes += out.last().map_or(0, String::len);
        }
        if self.stream_positions.log_count() > RESUME_LOGS_MAX {
            return Err(Problem::from(Refused::limit(LOGS_MAX, RESUME_LOGS_MAX as u64)));
        }
        self.push_position(out);
        Ok(())
    }

    fn notice_message(&mut self, notice: &Notice) -> Option<(&'static str, Map<String, Value>)> {
        if let Some((log, position)) = position_after(notice) {
            self.stream_positions.advance(log, position);
        }
        if let Notice::Deleted { log, .. } = notice
            && !self.stream_positions.is_single_log()
        {
            self.stream_positions.remove(log);
        }
        match notice_event(notice)? {
            (op, Value::Object(object)) => Some((op, object)),
            _ => None,
        }
    }

    /// Adds a message with the new position if records were skipped since the last message.
    pub(super) fn write_heartbeat(&mut self, out: &mut Vec<String>) {
        self.stream_positions.copy_from(&mut self.subscriber);
        self.push_position(out);
    }

    /// Adds a message with the position from which the client can resume, if it has changed.
    fn push_position(&mut self, out: &mut Vec<String>) {
        if let Some(at) = self.stream_positions.take_id() {
            out.push(json!({"op": "position", "id": self.id, "resume": at}).to_string());
        }
    }

    fn push_message(
        &mut self,
        op: &str,
        mut object: Map<String, Value>,
        with_position: bool,
        out: &mut Vec<String>,
    ) {
        object.insert("op".to_owned(), op.into());
        object.insert("id".to_owned(), self.id.into());
        if with_position && let Some(at) = self.stream_positions.take_id() {
            object.insert("resume".to_owned(), at.into());
        }
        out.push(Value::Object(object).to_string());
    }
}
