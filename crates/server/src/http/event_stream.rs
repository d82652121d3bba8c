//! A response body of server-sent events. Events are read from their source when the connection can take more.
//!
//! Invariants:
//! - Records that the client does not read stay in the log. The response holds one chunk in memory, but no segment of a
//!   log.
//! - When the user loses access or the node stops, the last event, `end`, gives the reason.
//! - A client that reads receives at least one message in each heartbeat interval.
//!
//! Limits: a chunk is complete when it has `http.event_bytes` bytes. A large record may make a chunk larger. A chunk of
//! more than twice this size is charged to the client's memory budget until it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use dunlin::Refused;
use dunlin::topic::{MemoryBudget, MemoryCharge, Subscribe, Subscriber};
use dunlin::wire::ErrorCode;
use dunlin::wire::http::write_event;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::context::Context;
use super::problem::Problem;
use crate::access::SubscriptionAccess;
use crate::charging::charged_bytes;
use crate::shared::SharedServer;

/// Writes the events of an [`EventStream`].
pub(super) trait EventSource {
    /// The subscriber whose records become events. It wakes the stream when it has records.
    fn subscriber(&mut self) -> &mut Subscriber;

    /// Writes about `bytes_max` bytes of events to `out`, or fewer if many records cause no event. Fails when there
    /// will be no more events.
    fn fill(&mut self, bytes_max: usize, out: &mut String) -> Result<(), Problem>;

    /// Writes a heartbeat. If records were skipped, the heartbeat contains the new position.
    fn write_heartbeat(&mut self, out: &mut String);

    /// Called with the reason when the stream ends.
    fn on_end(&mut self, _why: &Problem) {}
}

/// A response body of server-sent events.
#[derive(Debug)]
pub(super) struct EventStream<S> {
    shared: Arc<SharedServer>,
    /// The memory budget of the client's tenant.
    budget: Arc<MemoryBudget>,
    source: S,
    /// Text that is sent before the first event; `None` after it was sent.
    preamble: Option<String>,
    heartbeat: Pin<Box<Sleep>>,
    has_ended: bool,
    validity: Option<SubscriptionAccess>,
}

impl<S: EventSource + Send + Unpin + 'static> EventStream<S> {
    /// Creates the response. `preamble` is text that is sent before the first event.
    pub(super) fn respond(
        context: &Context,
        validity: Option<SubscriptionAccess>,
        preamble: String,
        source: S,
    ) -> Response {
        let shared = Arc::clone(context.shared());
        let budget = Arc::clone(context.node().connection_budget());
        let heartbeat = Box::pin(tokio::time::sleep(heartbeat_interval(&shared)));
        let preamble = Some(preamble);
        let stream = EventStream { shared, budget, source, preamble, heartbeat, has_ended: false, validity };
        let mut response = Response::new(axum::body::Body::new(stream));
        set_headers(response.headers_mut());
        response
    }
}

fn set_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Makes proxies such as nginx pass on each event at once, instead of collecting events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
}

impl<S: EventSource> EventStream<S> {
    fn fill(&mut self, out: &mut String) {
        let bytes_max = self.shared.limits.http.event_bytes as usize;
        let filled = self.source.fill(bytes_max, out);
        // Releases the log's segment, so that a slow client does not keep it in memory.
        let _ = self.source.subscriber().drain(0, |_| ());
        if let Err(why) = filled {
            self.end(&why, out);
        }
    }

    fn end(&mut self, why: &Problem, out: &mut String) {
        write_event(None, Some("end"), &why.json().to_string(), out);
        self.has_ended = true;
        self.source.on_end(why);
    }

    /// Sends a chunk; a large chunk is charged to the memory budget until it is sent.
    fn send(&mut self, mut out: String) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.heartbeat.as_mut().reset(Instant::now() + heartbeat_interval(&self.shared));
        if out.len() <= 2 * self.shared.limits.http.event_bytes as usize {
            return Poll::Ready(Some(Ok(Frame::data(out.into()))));
        }
        let bytes = match MemoryCharge::of(&self.budget, out.len()) {
            Ok(charge) => charged_bytes(out, charge),
            Err(spent) => {
                // Drops the chunk. Its records are not lost, because a client that resumes receives them again.
                out.clear();
                self.end(&Problem::from(Refused::from(spent)), &mut out);
                out.into()
            }
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl<S: EventSource + Unpin> Body for EventStream<S> {
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
        let mut out = this.preamble.take().unwrap_or_default();
        // Access is checked at each poll. A change of the users file wakes the connection, which polls this body.
        if let Some(Err(refused)) = this.validity.as_mut().map(SubscriptionAccess::check) {
            this.end(&Problem::from(refused), &mut out);
            return this.send(out);
        }
        this.fill(&mut out);
        // When the server stops, it wakes the connection, which then polls this body.
        if this.shared.is_stopping() && !this.has_ended {
            this.end(&Problem::from(Refused::new(ErrorCode::ShuttingDown, "")), &mut out);
        }
        if !out.is_empty() {
            return this.send(out);
        }
        match this.source.subscriber().poll_ready(cx) {
            Poll::Ready(Ok(())) => {
                // The source has skipped many records without an event. Other connections of the thread run before the
                // source continues.
                cx.waker().wake_by_ref();
            }
            Poll::Ready(Err(refused)) => {
                this.end(&Problem::from(refused), &mut out);
                return this.send(out);
            }
            Poll::Pending => {}
        }
        match this.heartbeat.as_mut().poll(cx) {
            Poll::Ready(()) => this.source.write_heartbeat(&mut out),
            Poll::Pending => return Poll::Pending,
        }
        this.send(out)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

fn heartbeat_interval(shared: &SharedServer) -> Duration {
    Duration::from_millis(shared.limits.http.heartbeat_ms.into())
}
