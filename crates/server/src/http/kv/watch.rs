//! `GET /v1/watch` streams the changes of keys as server-sent events. An event's id is a position: epoch and revision.
//!
//! Invariant: if a client resumes with a position of another epoch, or at a revision that was compacted, the stream
//! ends with the event `end`.

use axum::Extension;
use axum::extract::RawQuery;
use axum::http::HeaderMap;
use axum::response::Response;
use dunlin::state::{ControlQuery, KeyEvent, KeyEvents, prefix_end};
use dunlin::topic::{
    self, MemoryCharge, Notice, OnGap, Position, Record, Start, Subscribe, SubscribeError, SubscribeOptions,
    Subscriber, WaitStrategy,
};
use dunlin::wire::ErrorCode;
use dunlin::wire::http::{write_comment, write_event, write_id};
use dunlin::{KV, Refused};
use serde_json::{Value, json};

use super::json as kv_json;
use crate::access::SubscriptionAccess;
use crate::charging::charge_subscriptions;
use crate::http::context::Context;
use crate::http::event_stream::{EventSource, EventStream};
use crate::http::problem::Problem;
use crate::http::query::QueryParameters;
use crate::protocol::Protocol;

/// After this many revisions, other connections of the thread are served before the next revisions are read.
const REVISIONS_PER_FILL: usize = 1_024;

/// Writes the changes of keys with a prefix as events.
struct WatchEvents {
    subscriber: Subscriber,
    prefix: Vec<u8>,
    /// The position that the last sent id contains.
    last_position: Position,
    /// Memory that is charged for the watch until this field is dropped.
    _charge: MemoryCharge,
}

pub(in crate::http) async fn watch(
    Extension(context): Extension<Context>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = QueryParameters::parse(query.as_deref(), &["prefix", "from"])?;
    let prefix = query.get("prefix").unwrap_or("").as_bytes().to_vec();
    let validity = context.login().map(SubscriptionAccess::of);
    context.node().may_query(&ControlQuery::Range { start: &prefix, end: &prefix_end(&prefix), limit: 0 })?;
    let charge = charge_subscriptions(context.node(), 1, 0)?;
    let subscriber = subscribe(&context, &query, &headers).await?;
    let mut changes = WatchEvents { subscriber, prefix, last_position: Position::default(), _charge: charge };
    let mut preamble = String::new();
    write_comment("watching", &mut preamble);
    changes.write_position(&mut preamble);
    Ok(EventStream::respond(&context, validity, preamble, changes))
}

async fn subscribe(
    context: &Context,
    query: &QueryParameters,
    headers: &HeaderMap,
) -> Result<Subscriber, Problem> {
    let epoch = context.node().control_async().await?.epoch().await?;
    let options = SubscribeOptions {
        name: context.peer(),
        protocol: Protocol::Http.name(),
        start: parse_start(query, headers, epoch)?,
        on_gap: OnGap::Fail,
        wait: WaitStrategy::Parked,
        ..SubscribeOptions::default()
    };
    context.node().check_start(KV, options.start).await?;
    Ok(context.node().subscribe(KV, &options)?)
}

/// The start of a watch: after the position in the header `last-event-id`, or else at the revision in the query
/// parameter `from`. Without both, the watch starts with the next change.
fn parse_start(query: &QueryParameters, headers: &HeaderMap, epoch: u32) -> Result<Start, Problem> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()).filter(|id| !id.is_empty());
    if let Some(last) = last {
        let invalid =
            |_| Problem::bad_request(format!("Last-Event-ID: {last}: expected EPOCH-REVISION, like 3-42"));
        return Ok(Start::After(last.parse().map_err(invalid)?));
    }
    let from = match query.get("from") {
        None => return Ok(Start::Latest),
        Some("oldest") => return Ok(Start::Earliest),
        Some(from) => from,
    };
    let invalid =
        || Problem::bad_request(format!("from={from}: expected a revision, EPOCH-REVISION, or oldest"));
    let first = match from.parse() {
        Ok(seq) => Position { epoch, seq },
        Err(_) => from.parse().map_err(|_| invalid())?,
    };
    let seq = first.seq.checked_sub(1).ok_or_else(invalid)?;
    Ok(Start::After(Position { seq, ..first }))
}

impl WatchEvents {
    /// Writes the current position as an id if it differs from the last sent id. Returns whether an id was written.
    fn write_position(&mut self, out: &mut String) -> bool {
        let mut last_position = self.last_position;
        self.subscriber.for_each_position(|_, position| last_position = position);
        let has_moved = last_position != self.last_position;
        if has_moved {
            self.last_position = last_position;
            write_id(&last_position.to_string(), out);
        }
        has_moved
    }
}

impl EventSource for WatchEvents {
    fn subscriber(&mut self) -> &mut Subscriber {
        &mut self.subscriber
    }

    fn fill(&mut self, bytes_max: usize, out: &mut String) -> Result<(), Problem> {
        for _ in 0..REVISIONS_PER_FILL {
            if out.len() >= bytes_max {
                break;
            }
            match self.subscriber.try_next() {
                Ok(Some(topic::Event::Record(record))) => {
                    if write(&record, &self.prefix, out) {
                        self.last_position = record.position;
                    }
                }
                Ok(Some(topic::Event::Notice(notice))) => end_reason(&notice).map_or(Ok(()), Err)?,
                Ok(None) => break,
                Err(SubscribeError::Closed) => {
                    return Err(Problem::from(Refused::new(ErrorCode::ShuttingDown, "")));
                }
                Err(error) => return Err(Problem::from(error)),
            }
        }
        Ok(())
    }

    fn write_heartbeat(&mut self, out: &mut String) {
        if !self.write_position(out) {
            write_comment("", out);
        }
    }
}

/// Writes an event with the changes that this revision made to keys with the prefix. Returns whether there were any
/// such changes.
fn write(record: &Record<'_>, prefix: &[u8], out: &mut String) -> bool {
    let Ok(events) = KeyEvents::new(record.payload()) else { return false };
    let has_prefix = |event: &KeyEvent<'_>| match event {
        KeyEvent::Put { key, .. } | KeyEvent::Deleted { key } => key.starts_with(prefix),
    };
    let events: Vec<Value> =
        events.flatten().filter(has_prefix).map(|event| kv_json::event(&event)).collect();
    if events.is_empty() {
        return false;
    }
    let body = json!({"revision": record.seq(), "events": events}).to_string();
    write_event(Some(&record.position.to_string()), None, &body, out);
    true
}

/// The error with which the stream ends after this notice; `None` if the stream continues.
fn end_reason(notice: &Notice) -> Option<Problem> {
    let compacted = |numbers, text: &str| {
        Some(Problem::from(Refused { numbers, ..Refused::new(ErrorCode::Compacted, text) }))
    };
    match notice {
        Notice::Gap(gap) => compacted([gap.last + 1, gap.first, 0], ""),
        Notice::EpochChanged(changed) => compacted(
            [changed.new_first.seq, changed.last_seen + 1, 0],
            "the revisions started again in a new epoch",
        ),
        _ => None,
    }
}
