//! `GET /v1/watch`: what changes, as server-sent events whose ids are revisions.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use dunlin::state::{Event, Events};
use dunlin::topic::{
    self, Notice, OnGap, Position, Start, Subscribe, SubscribeError, SubscribeOptions, Subscriber, Wait,
};
use dunlin::wire::ErrorCode;
use dunlin::wire::http::{write_comment, write_event};
use dunlin::{KV, Refused};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{json as shown, number};
use crate::door::Door;
use crate::http::context::Context;
use crate::http::problem::Problem;
use crate::http::query::Query;

/// Events that wait for a client to take them; after that history does.
const AHEAD: usize = 16;

pub(in crate::http) async fn watch(
    Extension(context): Extension<Context>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(query.as_deref(), &["prefix", "from"])?;
    let prefix = query.get("prefix").unwrap_or("").as_bytes().to_vec();
    let subscriber = subscribe(&context, &query, &headers)?;
    let heartbeat = Duration::from_millis(context.limits().http.heartbeat_ms.into());
    let (send, events) = mpsc::channel::<Result<Bytes, std::convert::Infallible>>(AHEAD);
    tokio::spawn(follow(subscriber, prefix, heartbeat, send));
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(events)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

fn subscribe(context: &Context, query: &Query, headers: &HeaderMap) -> Result<Subscriber, Problem> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()).filter(|id| !id.is_empty());
    let last = last.map(|id| {
        id.parse::<u64>()
            .map_err(|_| Problem::bad_request(format!("Last-Event-ID: {id}: expected a revision")))
    });
    let first = match last.transpose()? {
        Some(last) => Some(last + 1),
        None if query.get("from") == Some("oldest") => None,
        None => number(query, "from")?.or(Some(u64::MAX)),
    };
    let epoch = context.node().control()?.with(dunlin::state::State::epoch)?;
    let start = match first {
        None => Start::Earliest,
        Some(u64::MAX) => Start::Latest,
        Some(first) => Start::After(Position { epoch, seq: first.saturating_sub(1) }),
    };
    let options = SubscribeOptions {
        name: context.peer(),
        door: Door::Http.name(),
        start,
        on_gap: OnGap::Fail,
        wait: Wait::Parked,
        ..SubscribeOptions::default()
    };
    Ok(context.node().subscribe(KV, &options)?)
}

/// Hands events on until the client is gone or there are none to come.
async fn follow(
    mut subscriber: Subscriber,
    prefix: Vec<u8>,
    heartbeat: Duration,
    send: mpsc::Sender<Result<Bytes, std::convert::Infallible>>,
) {
    let mut out = String::new();
    write_comment("watching", &mut out);
    loop {
        if !out.is_empty() && send.send(Ok(Bytes::from(std::mem::take(&mut out)))).await.is_err() {
            return;
        }
        match tokio::time::timeout(heartbeat, subscriber.next_async()).await {
            Err(_quiet) => write_comment("", &mut out),
            Ok(Ok(event)) => {
                if let Some(end) = write(&event, &prefix, &mut out) {
                    write_event(None, Some("end"), &end.json().to_string(), &mut out);
                    let _ = send.send(Ok(Bytes::from(out))).await;
                    return;
                }
            }
            Ok(Err(error)) => {
                let end = match error {
                    SubscribeError::Closed => Problem::from(Refused::new(ErrorCode::ShuttingDown, "")),
                    error => Problem::from(error),
                };
                write_event(None, Some("end"), &end.json().to_string(), &mut out);
                let _ = send.send(Ok(Bytes::from(out))).await;
                return;
            }
        }
    }
}

/// Writes what a revision changed of the keys that begin so; why the stream ends, if it does.
fn write(event: &topic::Event<'_>, prefix: &[u8], out: &mut String) -> Option<Problem> {
    match event {
        topic::Event::Record(record) => {
            let Ok(events) = Events::new(record.payload()) else { return None };
            let is_asked = |event: &Event<'_>| match event {
                Event::Put { key, .. } | Event::Deleted { key } => key.starts_with(prefix),
            };
            let events: Vec<Value> =
                events.flatten().filter(is_asked).map(|event| shown::event(&event)).collect();
            if !events.is_empty() {
                let body = json!({"revision": record.seq(), "events": events}).to_string();
                write_event(Some(&record.seq().to_string()), None, &body, out);
            }
            None
        }
        topic::Event::Notice(Notice::Gap(gap)) => {
            let numbers = [gap.last + 1, gap.first, 0];
            Some(Problem::from(Refused { numbers, ..Refused::new(ErrorCode::Compacted, "") }))
        }
        topic::Event::Notice(Notice::EpochChanged(changed)) => {
            let numbers = [changed.new_first.seq, changed.last_seen + 1, 0];
            Some(Problem::from(Refused {
                numbers,
                ..Refused::new(ErrorCode::Compacted, "revisions began anew")
            }))
        }
        topic::Event::Notice(_) => None,
    }
}
