//! `GET /v1/topics/{pattern}/events`: a subscription as server-sent events.

pub(super) mod format;
pub(super) mod request;
pub(super) mod stands;
mod stream;
pub(super) mod subscribe;

use std::net::SocketAddr;

use axum::Extension;
use axum::extract::RawQuery;
use axum::http::HeaderMap;
use axum::response::Response;

use super::context::Context;
use super::event_stream::EventStream;
use super::problem::Problem;
use super::routes::Name;
use crate::access::Standing;
use crate::departures::{Departure, Fate, in_words};
use crate::door::Door;
use crate::shared::Shared;
use request::EventsRequest;
use stream::TopicEvents;

/// The subscriber of a stream of events.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) door: Door,
    pub(super) name: String,
    pub(super) peer: Option<SocketAddr>,
}

impl Reader {
    /// Records why the subscriber was refused or cut off, for operators.
    pub(super) fn departs(&self, shared: &Shared, fate: Fate, why: &Problem) {
        let departure = Departure::new(self.door, fate, &in_words(why.refused()));
        shared.departures.note(departure.of(&self.name, self.peer));
    }
}

pub(super) async fn events(
    Extension(context): Extension<Context>,
    Name(pattern): Name,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let request = EventsRequest::read(query.as_deref(), &headers, &context.peer())?;
    let (door, name) = (Door::Http, request.options.name.clone());
    let reader = Reader { door, name, peer: context.peer_address() };
    let standing = context.login().map(Standing::of);
    let subscribed = subscribe::subscribe(&context, &pattern, &request).await;
    let subscribed =
        subscribed.inspect_err(|problem| reader.departs(context.shared(), Fate::Refused, problem))?;
    let (events, beginning) = TopicEvents::of(context.shared(), subscribed, request.form, reader);
    Ok(EventStream::respond(&context, standing, beginning, events))
}
