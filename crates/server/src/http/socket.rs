//! WebSockets: `GET /v1/ws`, where a connection becomes a WebSocket (RFC 6455).
//!
//! With the sub-protocol `dunlin.v1`, it is a session of Dunlin's own protocol in binary messages. At `/` without a
//! sub-protocol, it speaks the NATS client protocol in binary messages. With `dunlin.v1.json`, each message is a JSON
//! object (`texts`). Clients log in with the first message: an address has no place for credentials, and a page
//! cannot set headers.
//!
//! Limits: [`WsLimits`](crate::WsLimits), and those of the TCP listener.
//!
//! Frames are in [`Framed`]; `gate` checks a page's origin before.

mod handshake;
mod reading;
mod said;
mod texts;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::http::{Request, Version};
use axum::response::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::context::Context;
use super::page;
use super::problem::Problem;
use crate::stream::{Framed, Stream};
use crate::{nats, tcp};
use handshake::Speaks;

/// A connection that becomes a WebSocket.
#[derive(Debug)]
pub(super) struct Upgrade {
    on: OnUpgrade,
    speaks: Speaks,
}

/// Answers the handshake; [`serve`] continues after the response.
pub(super) async fn upgrade(
    Extension(context): Extension<Context>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    begin(&context, request, None)
}

/// The same at `/`, for NATS clients; any other request gets the dashboard.
pub(super) async fn upgrade_or_index(
    Extension(context): Extension<Context>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    if handshake::is_asked_for(request.headers()) {
        return begin(&context, request, Some(Speaks::Nats));
    }
    Ok(page::index(request.headers()))
}

fn begin(
    context: &Context,
    mut request: Request<Body>,
    unnamed: Option<Speaks>,
) -> Result<Response, Problem> {
    if request.version() < Version::HTTP_11 {
        return Err(Problem::bad_request("a WebSocket needs an HTTP/1.1 request"));
    }
    let (speaks, response) = handshake::answer(request.headers(), unnamed)?;
    context.will_go_on_as(Upgrade { on: hyper::upgrade::on(&mut request), speaks });
    Ok(response)
}

/// Serves the WebSocket to its end.
pub(super) async fn serve(context: Context, upgrade: Upgrade) {
    let Upgrade { on, speaks } = upgrade;
    // If the upgrade fails, there is no client to respond to.
    let Ok(upgraded) = on.await else { return };
    let Ok(parts) = upgraded.downcast::<TokioIo<Stream>>() else { return };
    let (stream, given) = (parts.io.into_inner(), parts.read_buf.to_vec());
    let shared = Arc::clone(context.shared());
    match speaks {
        Speaks::Bytes => {
            let framed = Box::new(Framed::of_bytes(stream, given));
            tcp::Session::begin(shared, Stream::Ws(framed)).await;
        }
        Speaks::Nats => {
            let framed = Box::new(Framed::of_bytes(stream, given));
            nats::Session::begin(shared, Stream::Ws(framed), None).await;
        }
        Speaks::Texts => texts::serve(context, Framed::of_texts(stream, given)).await,
    }
}
