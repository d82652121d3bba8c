//! `GET /v1/watch`: what changes, as server-sent events whose ids are positions: epoch and revision.
//!
//! Invariants:
//! - Whoever goes on after an id of another epoch, or of revisions that are not held any more, is told so, by an event `end`.
//! - It is read when the connection can take more, and not before: what is not read waits in history.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use dunlin::state::{Event, Events, Query as Asked, prefix_end};
use dunlin::topic::{
    self, Charge, Notice, OnGap, Position, Record, Start, Subscribe, SubscribeError, SubscribeOptions,
    Subscriber, Wait,
};
use dunlin::wire::ErrorCode;
use dunlin::wire::http::{write_comment, write_event, write_id};
use dunlin::{KV, Refused};
use http_body::Frame;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};

use super::json as shown;
use crate::access::Standing;
use crate::door::Door;
use crate::http::context::Context;
use crate::http::problem::Problem;
use crate::http::query::Query;
use crate::shared::Shared;

/// See the module.
struct WatchStream {
    shared: Arc<Shared>,
    subscriber: Subscriber,
    prefix: Vec<u8>,
    /// The last id that was written.
    stands: Position,
    beginning: Option<String>,
    heartbeat: Pin<Box<Sleep>>,
    has_ended: bool,
    standing: Option<Standing>,
    /// What it takes of the node's memory.
    _charge: Charge,
}

pub(in crate::http) async fn watch(
    Extension(context): Extension<Context>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(query.as_deref(), &["prefix", "from"])?;
    let prefix = query.get("prefix").unwrap_or("").as_bytes().to_vec();
    let standing = context.login().map(Standing::of);
    context.node().may_query(&Asked::Range { start: &prefix, end: &prefix_end(&prefix), limit: 0 })?;
    let charge = context.shared().charge_readers(1, 0)?;
    let subscriber = subscribe(&context, &query, &headers)?;
    let stream = WatchStream::new(&context, subscriber, prefix, standing, charge);
    let mut response = Response::new(Body::new(stream));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

fn subscribe(context: &Context, query: &Query, headers: &HeaderMap) -> Result<Subscriber, Problem> {
    let epoch = context.node().control()?.with(dunlin::state::State::epoch)?;
    let options = SubscribeOptions {
        name: context.peer(),
        door: Door::Http.name(),
        start: start(query, headers, epoch)?,
        on_gap: OnGap::Fail,
        wait: Wait::Parked,
        ..SubscribeOptions::default()
    };
    Ok(context.node().subscribe(KV, &options)?)
}

/// After the last event's id, else where `from` says.
fn start(query: &Query, headers: &HeaderMap, epoch: u32) -> Result<Start, Problem> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()).filter(|id| !id.is_empty());
    if let Some(last) = last {
        let bad =
            |_| Problem::bad_request(format!("Last-Event-ID: {last}: expected EPOCH-REVISION, like 3-42"));
        return Ok(Start::After(last.parse().map_err(bad)?));
    }
    let from = match query.get("from") {
        None => return Ok(Start::Latest),
        Some("oldest") => return Ok(Start::Earliest),
        Some(from) => from,
    };
    let bad = || Problem::bad_request(format!("from={from}: expected a revision, EPOCH-REVISION, or oldest"));
    let first = match from.parse() {
        Ok(seq) => Position { epoch, seq },
        Err(_) => from.parse().map_err(|_| bad())?,
    };
    let seq = first.seq.checked_sub(1).ok_or_else(bad)?;
    Ok(Start::After(Position { seq, ..first }))
}

impl WatchStream {
    fn new(
        context: &Context,
        subscriber: Subscriber,
        prefix: Vec<u8>,
        standing: Option<Standing>,
        charge: Charge,
    ) -> WatchStream {
        let shared = Arc::clone(context.shared());
        let heartbeat = Box::pin(tokio::time::sleep(heartbeat_of(&shared)));
        let mut stream = WatchStream {
            shared,
            subscriber,
            prefix,
            stands: Position::default(),
            beginning: None,
            heartbeat,
            has_ended: false,
            standing,
            _charge: charge,
        };
        let mut beginning = String::new();
        write_comment("watching", &mut beginning);
        stream.say_where(&mut beginning);
        stream.beginning = Some(beginning);
        stream
    }

    /// The id to go on after, if it is another than the last; `false` where it is not.
    fn say_where(&mut self, out: &mut String) -> bool {
        let mut stands = self.stands;
        self.subscriber.for_each_position(|_, position| stands = position);
        let moved = stands != self.stands;
        if moved {
            self.stands = stands;
            write_id(&stands.to_string(), out);
        }
        moved
    }

    /// Writes what is there to be read, as much as a chunk takes.
    fn fill(&mut self, out: &mut String) {
        let bytes_max = self.shared.limits.http.event_bytes as usize;
        while out.len() < bytes_max && !self.has_ended {
            let end = match self.subscriber.try_next() {
                Ok(Some(topic::Event::Record(record))) => {
                    if write(&record, &self.prefix, out) {
                        self.stands = record.position;
                    }
                    continue;
                }
                Ok(Some(topic::Event::Notice(notice))) => match end_of(&notice) {
                    Some(end) => end,
                    None => continue,
                },
                Ok(None) => break,
                Err(SubscribeError::Closed) => Problem::from(Refused::new(ErrorCode::ShuttingDown, "")),
                Err(error) => Problem::from(error),
            };
            self.end(&end, out);
        }
        // Nothing of the log is held while the client takes its time.
        let _ = self.subscriber.drain(0, |_| ());
    }

    fn end(&mut self, why: &Problem, out: &mut String) {
        write_event(None, Some("end"), &why.json().to_string(), out);
        self.has_ended = true;
    }

    fn send(&mut self, out: String) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.heartbeat.as_mut().reset(Instant::now() + heartbeat_of(&self.shared));
        Poll::Ready(Some(Ok(Frame::data(out.into()))))
    }
}

impl http_body::Body for WatchStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.has_ended {
            return Poll::Ready(None);
        }
        let mut out = this.beginning.take().unwrap_or_default();
        loop {
            // The connection is woken when the users file has changed, too.
            if let Some(Err(refused)) = this.standing.as_mut().map(Standing::check) {
                this.end(&Problem::from(refused), &mut out);
                return this.send(out);
            }
            this.fill(&mut out);
            // The connection is woken when the server stops, and asks for more then.
            if this.shared.is_stopping() && !this.has_ended {
                this.end(&Problem::from(Refused::new(ErrorCode::ShuttingDown, "")), &mut out);
            }
            if !out.is_empty() {
                return this.send(out);
            }
            match this.subscriber.poll_ready(cx) {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(refused)) => {
                    this.end(&Problem::from(refused), &mut out);
                    return this.send(out);
                }
                Poll::Pending => {}
            }
            if this.heartbeat.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if !this.say_where(&mut out) {
                write_comment("", &mut out);
            }
            return this.send(out);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

fn heartbeat_of(shared: &Shared) -> Duration {
    Duration::from_millis(shared.limits.http.heartbeat_ms.into())
}

/// Writes what a revision changed of the keys that begin so; whether that is anything.
fn write(record: &Record<'_>, prefix: &[u8], out: &mut String) -> bool {
    let Ok(events) = Events::new(record.payload()) else { return false };
    let is_asked = |event: &Event<'_>| match event {
        Event::Put { key, .. } | Event::Deleted { key } => key.starts_with(prefix),
    };
    let events: Vec<Value> = events.flatten().filter(is_asked).map(|event| shown::event(&event)).collect();
    if events.is_empty() {
        return false;
    }
    let body = json!({"revision": record.seq(), "events": events}).to_string();
    write_event(Some(&record.position.to_string()), None, &body, out);
    true
}

/// Why the stream ends, if it does.
fn end_of(notice: &Notice) -> Option<Problem> {
    let compacted = |numbers, text: &str| {
        Some(Problem::from(Refused { numbers, ..Refused::new(ErrorCode::Compacted, text) }))
    };
    match notice {
        Notice::Gap(gap) => compacted([gap.last + 1, gap.first, 0], ""),
        Notice::EpochChanged(changed) => {
            compacted([changed.new_first.seq, changed.last_seen + 1, 0], "revisions began anew")
        }
        _ => None,
    }
}
