//! `GET /v1/topics/{pattern}/events` sends the records of a subscription as server-sent events.

pub(super) mod format;
pub(super) mod request;
mod stream;
pub(super) mod stream_positions;
pub(super) mod subscribe;

use std::net::SocketAddr;

use axum::Extension;
use axum::extract::RawQuery;
use axum::http::HeaderMap;
use axum::response::Response;

use super::context::Context;
use super::event_stream::EventStream;
use super::problem::Problem;
use super::routes::PathName;
use crate::access::SubscriptionAccess;
use crate::departures::{ClientDeparture, DepartureKind, describe_refusal};
use crate::protocol::Protocol;
use crate::shared::SharedServer;
use request::EventsRequest;
use stream::TopicEvents;

/// The protocol, name and address under which operators see the subscriber of an event stream.
#[derive(Debug)]
pub(super) struct SubscriberIdentity {
    pub(super) protocol: Protocol,
    pub(super) name: String,
    pub(super) peer: Option<SocketAddr>,
}

impl SubscriberIdentity {
    /// Reports to operators why the subscriber was refused or cut off.
    pub(super) fn record_departure(&self, shared: &SharedServer, kind: DepartureKind, why: &Problem) {
        let departure = ClientDeparture::new(self.protocol, kind, &describe_refusal(why.refused()));
        shared.departures.note(departure.of(&self.name, self.peer));
    }
}

pub(super) async fn events(
    Extension(context): Extension<Context>,
    PathName(pattern): PathName,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let request = EventsRequest::read(query.as_deref(), &headers, &context.peer())?;
    let (protocol, name) = (Protocol::Http, request.options.name.clone());
    let identity = SubscriberIdentity { protocol, name, peer: context.peer_address() };
    let validity = context.login().map(SubscriptionAccess::of);
    let subscribed = subscribe::subscribe(&context, &pattern, &request).await;
    let subscribed = subscribed.inspect_err(|problem| {
        identity.record_departure(context.shared(), DepartureKind::Refused, problem)
    })?;
    let (events, preamble) = TopicEvents::of(context.shared(), subscribed, request.format, identity);
    Ok(EventStream::respond(&context, validity, preamble, events))
}
