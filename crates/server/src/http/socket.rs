//! Door `ws`: `GET /v1/ws`, where a connection goes on as a WebSocket (RFC 6455).
//!
//! In the sub-protocol `dunlin.v1` it is a session of door `tcp` whose bytes come and go in binary messages; nothing of that
//! session knows. A client that asks for no sub-protocol, at `/`, speaks the NATS client protocol, in binary messages too. In `dunlin.v1.json` each message is an object of JSON (`texts`). Who comes says so in the first message: there is
//! no place for credentials in an address, and a page cannot set headers here.
//!
//! Limits: [`WsLimits`](crate::WsLimits), and those of door `tcp`.
//!
//! Not here: frames ([`Framed`]); whose pages may come in, which is seen to before (`gate`).

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

/// A connection that is about to go on as a WebSocket.
#[derive(Debug)]
pub(super) struct Upgrade {
    on: OnUpgrade,
    speaks: Speaks,
}

/// Answers the handshake; the connection goes on with [`serve`] when that was sent.
pub(super) async fn upgrade(
    Extension(context): Extension<Context>,
    request: Request<Body>,
) -> Result<Response, Problem> {
    begin(&context, request, None)
}

/// The same at `/`, where NATS clients come; a request that asks for no WebSocket gets the page.
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
        return Err(Problem::bad_request("a WebSocket begins with a request of HTTP/1.1"));
    }
    let (speaks, response) = handshake::answer(request.headers(), unnamed)?;
    context.will_go_on_as(Upgrade { on: hyper::upgrade::on(&mut request), speaks });
    Ok(response)
}

/// Serves the WebSocket to its end.
pub(super) async fn serve(context: Context, upgrade: Upgrade) {
    let Upgrade { on, speaks } = upgrade;
    // Where it is none of ours nobody is there to be told.
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
