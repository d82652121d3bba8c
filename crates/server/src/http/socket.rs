//! Turns HTTP connections into WebSockets (RFC 6455). The request is `GET /v1/ws` or `GET /`.
//!
//! With the sub-protocol `dunlin.v1`, the WebSocket carries a session of Dunlin's own protocol in binary messages. At
//! `/` without a sub-protocol, the WebSocket carries the NATS client protocol in binary messages. With
//! `dunlin.v1.json`, each message is a JSON object (`json_socket`). Clients log in with their first message, because a
//! URL has no place for credentials and a web page cannot set headers.
//!
//! Limits: [`WsLimits`](crate::WsLimits), and those of the TCP listener.
//!
//! [`WebSocketStream`] reads and writes the frames. `gate` checks the origin of a web page before the handshake.

mod client_message;
mod handshake;
mod json_socket;
mod subscription;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::http::{Request, Version};
use axum::response::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::context::Context;
use super::head_reads::HeadReads;
use super::page;
use super::problem::Problem;
use crate::stream::{Stream, WebSocketStream};
use crate::{nats, tcp};
use handshake::SubProtocol;

/// A connection that becomes a WebSocket once the response to the handshake is sent.
#[derive(Debug)]
pub(super) struct Upgrade {
    on: OnUpgrade,
    sub_protocol: SubProtocol,
}

/// Responds to the handshake. After the response, [`serve`] serves the WebSocket.
pub(super) async fn upgrade(
    Extension(context): Extension<Context>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    begin(&context, request, None)
}

/// Responds to a request at `/`: with the handshake for NATS clients over WebSocket, otherwise with the dashboard.
pub(super) async fn upgrade_or_index(
    Extension(context): Extension<Context>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    if handshake::is_requested(request.headers()) {
        return begin(&context, request, Some(SubProtocol::Nats));
    }
    Ok(page::index(request.headers()))
}

fn begin(
    context: &Context,
    mut request: Request<Body>,
    default: Option<SubProtocol>,
) -> Result<Response, Problem> {
    if request.version() < Version::HTTP_11 {
        return Err(Problem::bad_request("a WebSocket needs an HTTP/1.1 request"));
    }
    let (sub_protocol, response) = handshake::respond(request.headers(), default)?;
    context.set_upgrade(Upgrade { on: hyper::upgrade::on(&mut request), sub_protocol });
    Ok(response)
}

pub(super) async fn serve(context: Context, upgrade: Upgrade) {
    let Upgrade { on, sub_protocol } = upgrade;
    // If the upgrade failed, the client is gone, so no error can be sent.
    let Ok(upgraded) = on.await else { return };
    let Ok(parts) = upgraded.downcast::<TokioIo<HeadReads<Stream>>>() else { return };
    let (stream, leftover) = (parts.io.into_inner().into_inner(), parts.read_buf.to_vec());
    let shared = Arc::clone(context.shared());
    match sub_protocol {
        SubProtocol::Bytes => {
            let framed = Box::new(WebSocketStream::binary(stream, leftover));
            tcp::Session::begin(shared, Stream::Ws(framed)).await;
        }
        SubProtocol::Nats => {
            let framed = Box::new(WebSocketStream::binary(stream, leftover));
            nats::Session::begin(shared, Stream::Ws(framed), None).await;
        }
        SubProtocol::Texts => json_socket::serve(context, WebSocketStream::text(stream, leftover)).await,
    }
}
