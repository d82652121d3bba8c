//! Creates the tracing spans of HTTP requests, gRPC calls and sessions (`dunlin serve --otlp-endpoint`).
//!
//! The spans are those of the crate `tracing`, with this module's path as their target. The names of their fields
//! follow OpenTelemetry's conventions for HTTP, RPC and networks. Other fields have names that begin with `dunlin.`.
//!
//! Invariants:
//! - Single records have no spans.
//! - If no part of the program collects spans, no span is created, and the bodies of responses are not wrapped.
//!
//! All numbers in fields are signed, because OpenTelemetry has no unsigned numbers, and unsigned ones would appear as
//! text.
//!
//! This crate does not depend on OpenTelemetry itself; only the command line does (`crates/cli/src/telemetry.rs`).

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use http::{HeaderMap, Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use tracing::field::Empty;
use tracing::{Span, info_span};

use crate::protocol::Protocol;

/// The target of all spans that this module creates.
pub const TARGET: &str = module_path!();

/// A function that makes a span part of the trace that its request's headers name.
type TraceContinuation = fn(&Span, &HeaderMap);

static CONTINUE: OnceLock<TraceContinuation> = OnceLock::new();

/// Sets the function that makes a span part of its request's trace. Only the first call has an effect, because a
/// process has one tracing subscriber.
pub fn set_trace_continuation(continuation: TraceContinuation) {
    let _ = CONTINUE.set(continuation);
}

fn continue_trace(span: Span, headers: &HeaderMap) -> Span {
    if let Some(continuation) = CONTINUE.get() {
        continuation(&span, headers);
    }
    span
}

/// Creates the span of an HTTP request. `route` is the request's path with placeholders instead of names.
pub(crate) fn request_span<B>(
    request: &Request<B>,
    route: Option<&'static str>,
    peer: Option<SocketAddr>,
) -> Span {
    let span = info_span!(
        "request",
        otel.name = Empty,
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = Empty,
        http.route = Empty,
        http.response.status_code = Empty,
        "error.type" = Empty,
        url.scheme = "http",
        url.path = Empty,
        client.address = Empty,
        client.port = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    let method = method_name(request.method());
    match route {
        Some(route) => {
            span.record("otel.name", format!("{method} {route}"));
            span.record("http.route", route);
        }
        None => {
            span.record("otel.name", method);
        }
    }
    span.record("http.request.method", method);
    span.record("url.path", request.uri().path());
    record_address(&span, ["client.address", "client.port"], peer);
    continue_trace(span, request.headers())
}

/// The name of the method in OpenTelemetry's conventions, which name all unusual methods `_OTHER`.
fn method_name(method: &Method) -> &'static str {
    const KNOWN_METHODS: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN_METHODS.into_iter().find(|method_name| method == method_name).unwrap_or("_OTHER")
}

/// Creates the span of a gRPC call.
pub(crate) fn call_span<B>(request: &Request<B>, peer: Option<SocketAddr>) -> Span {
    let span = info_span!(
        "call",
        otel.name = Empty,
        otel.kind = "server",
        otel.status_code = Empty,
        rpc.system = "grpc",
        rpc.service = Empty,
        rpc.method = Empty,
        rpc.grpc.status_code = Empty,
        client.address = Empty,
        client.port = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    let path = request.uri().path().trim_start_matches('/');
    span.record("otel.name", path);
    if let Some((service, method)) = path.rsplit_once('/') {
        span.record("rpc.service", service);
        span.record("rpc.method", method);
    }
    record_address(&span, ["client.address", "client.port"], peer);
    continue_trace(span, request.headers())
}

/// Creates the span of a session with Dunlin's own protocol or with NATS.
pub(crate) fn session_span(protocol: Protocol, peer: Option<SocketAddr>, session: u64) -> Span {
    let span = info_span!(
        "session",
        otel.name = Empty,
        otel.kind = "server",
        otel.status_code = Empty,
        network.protocol.name = Empty,
        network.transport = Empty,
        network.peer.address = Empty,
        network.peer.port = Empty,
        dunlin.session.id = session as i64,
        dunlin.session.end = Empty,
        dunlin.client.name = Empty,
        dunlin.records.sent = Empty,
    );
    if !span.is_disabled() {
        let protocol =
            if matches!(protocol, Protocol::Tcp | Protocol::Ws) { "dunlin" } else { protocol.name() };
        span.record("otel.name", format!("{protocol} session"));
        span.record("network.protocol.name", protocol);
        span.record("network.transport", if peer.is_some() { "tcp" } else { "unix" });
        record_address(&span, ["network.peer.address", "network.peer.port"], peer);
    }
    span
}

/// Records the end of a session in its span. The span is marked as an error if the node ended the session for any
/// reason other than its own stop.
pub(crate) fn end_session(span: &Span, records: u64, why: Option<&str>) {
    span.record("dunlin.records.sent", records as i64);
    span.record("dunlin.session.end", why.unwrap_or("the client closed it"));
    if why.is_some_and(|why| why != dunlin::wire::ErrorCode::ShuttingDown.to_string()) {
        span.record("otel.status_code", "ERROR");
    }
}

fn record_address(span: &Span, [address, port]: [&'static str; 2], peer: Option<SocketAddr>) {
    if let Some(peer) = peer {
        span.record(address, peer.ip().to_canonical().to_string());
        span.record(port, i64::from(peer.port()));
    }
}

/// Records the status of an HTTP response in the request's span.
pub(crate) fn record_response<B>(span: &Span, response: &Response<B>) {
    let status = response.status();
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("error.type", status.as_str());
        span.record("otel.status_code", "ERROR");
    }
}

/// The body of a response, together with its span. The span ends when the body was sent completely or was dropped. For
/// a gRPC call, the status in the trailers is recorded in the span.
#[derive(Debug)]
pub(crate) struct TracedBody<B> {
    body: B,
    span: Span,
    is_call: bool,
}

impl<B> TracedBody<B> {
    pub(crate) fn for_request(body: B, span: Span) -> TracedBody<B> {
        TracedBody { body, span, is_call: false }
    }

    /// Wraps the body of a gRPC response. If a call has no response messages, its status is in `headers` instead of the
    /// trailers.
    pub(crate) fn for_call(body: B, span: Span, headers: &HeaderMap) -> TracedBody<B> {
        let mut traced = TracedBody { body, span, is_call: true };
        traced.record_status(headers);
        traced
    }

    fn record_status(&mut self, headers: &HeaderMap) {
        let status = headers.get("grpc-status").and_then(|status| status.to_str().ok()?.parse::<i64>().ok());
        if let (true, Some(status)) = (self.is_call, status) {
            self.end_call(status);
        }
    }

    fn end_call(&mut self, status: i64) {
        /// The gRPC status codes that OpenTelemetry's conventions count as errors of the server.
        const ERRORS: [i64; 6] = [2, 4, 12, 13, 14, 15];
        self.is_call = false;
        self.span.record("rpc.grpc.status_code", status);
        if ERRORS.contains(&status) {
            self.span.record("otel.status_code", "ERROR");
        }
    }
}

impl<B: Body + Unpin> Body for TracedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &poll
            && let Some(trailers) = frame.trailers_ref()
        {
            this.record_status(trailers);
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for TracedBody<B> {
    fn drop(&mut self) {
        /// The gRPC status code for a call that the client has cancelled.
        const CANCELLED: i64 = 1;
        if self.is_call {
            self.end_call(CANCELLED);
        }
    }
}
