//! A response of server-sent events: read from where they come from when the connection can take more, and not before.
//!
//! Invariants:
//! - What the client does not read waits in history: of it one chunk is held, and nothing of a log.
//! - Who is no longer let in, and who is connected to a node that stops, is told so by the last event, `end`.
//! - A client that listens hears something once in a heartbeat.
//!
//! Limits: `http.event_bytes`, after which a chunk ends (one record may go beyond it); a chunk of more than twice that is
//! charged to the node's budget until it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use dunlin::Refused;
use dunlin::topic::{Charge, PublishError, Subscribe, Subscriber};
use dunlin::wire::ErrorCode;
use dunlin::wire::http::write_event;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::context::Context;
use super::problem::Problem;
use crate::access::Standing;
use crate::shared::Shared;

/// What is told.
pub(super) trait Source {
    /// Where it comes from: it wakes the stream.
    fn subscriber(&mut self) -> &mut Subscriber;

    /// Writes what is there, until `out` has about so many bytes; why nothing more will come, where that is so.
    fn fill(&mut self, bytes_max: usize, out: &mut String) -> Result<(), Problem>;

    /// Writes what shows that the node is there, and how far it has come where nothing was to be told.
    fn beat(&mut self, out: &mut String);

    /// The stream ends, for this reason.
    fn ends(&mut self, _why: &Problem) {}
}

/// See the module.
#[derive(Debug)]
pub(super) struct EventStream<S> {
    shared: Arc<Shared>,
    source: S,
    /// What is sent before anything is read.
    beginning: Option<String>,
    heartbeat: Pin<Box<Sleep>>,
    has_ended: bool,
    standing: Option<Standing>,
}

impl<S: Source + Send + Unpin + 'static> EventStream<S> {
    /// The response to whoever has logged in so; it says `beginning` first.
    pub(super) fn respond(
        context: &Context,
        standing: Option<Standing>,
        beginning: String,
        source: S,
    ) -> Response {
        let shared = Arc::clone(context.shared());
        let heartbeat = Box::pin(tokio::time::sleep(heartbeat_of(&shared)));
        let beginning = Some(beginning);
        let stream = EventStream { shared, source, beginning, heartbeat, has_ended: false, standing };
        let mut response = Response::new(axum::body::Body::new(stream));
        describe(response.headers_mut());
        response
    }
}

fn describe(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // For proxies that would collect events before they pass them on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
}

impl<S: Source> EventStream<S> {
    fn fill(&mut self, out: &mut String) {
        let bytes_max = self.shared.limits.http.event_bytes as usize;
        let filled = self.source.fill(bytes_max, out);
        // Nothing of a log is held while the client takes its time.
        let _ = self.source.subscriber().drain(0, |_| ());
        if let Err(why) = filled {
            self.end(&why, out);
        }
    }

    fn end(&mut self, why: &Problem, out: &mut String) {
        write_event(None, Some("end"), &why.json().to_string(), out);
        self.has_ended = true;
        self.source.ends(why);
    }

    /// What was written goes on its way, charged as long as it takes.
    fn send(&mut self, mut out: String) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.heartbeat.as_mut().reset(Instant::now() + heartbeat_of(&self.shared));
        if out.len() <= 2 * self.shared.limits.http.event_bytes as usize {
            return Poll::Ready(Some(Ok(Frame::data(out.into()))));
        }
        let bytes = match Charge::of(self.shared.node.budget(), out.len()) {
            Ok(charge) => Bytes::from_owner(Charged { out, _charge: charge }),
            Err(spent) => {
                // The reader comes back to where it was before this.
                out.clear();
                self.end(&Problem::from(PublishError::from(spent)), &mut out);
                out.into()
            }
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl<S: Source + Unpin> Body for EventStream<S> {
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
            match this.source.subscriber().poll_ready(cx) {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(refused)) => {
                    this.end(&Problem::from(refused), &mut out);
                    return this.send(out);
                }
                Poll::Pending => {}
            }
            match this.heartbeat.as_mut().poll(cx) {
                Poll::Ready(()) => this.source.beat(&mut out),
                Poll::Pending => return Poll::Pending,
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

/// Text that is charged until it was sent.
struct Charged {
    out: String,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        self.out.as_bytes()
    }
}
