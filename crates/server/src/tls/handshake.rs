//! The TLS handshake of a new connection.
//!
//! Limits: `handshake_ms_max` for the whole handshake, during which the connection counts as a session (`sessions_max`)
//! and needs the memory of [`TlsCodec`]. `handshakes_max` handshakes run at a time. Further ones wait after the
//! client's first byte; the same time limit applies to them.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin::Refused;
use dunlin::topic::Waiter;
use dunlin::wire::{ErrorCode, FromNode, Preamble};
use dunlin_client::tls::TlsCodec;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{ClientCertificate, TlsIdentity};
use crate::grpc;
use crate::http;
use crate::nats;
use crate::protocol::Protocol;
use crate::shared::SharedServer;
use crate::stream::{Stream, TlsStream, explain};

/// The first byte of a TLS handshake message.
const HANDSHAKE: u8 = 0x16;
/// A fatal TLS alert `internal_error`. No alert means "connection limit reached"; this one is the closest.
const NO_PLACE: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 80];
/// How long a refused client has to read the refusal.
const FAREWELL: Duration = Duration::from_secs(1);
/// Maximum number of bytes of a refused client that are read and discarded.
const UNHEARD_BYTES_MAX: usize = 256 << 10;

/// A connection that completed the handshake.
pub(crate) struct TlsConnection {
    pub(crate) stream: Stream,
    /// The session's number, if the client has already received it in INFO.
    pub(crate) told: Option<u64>,
}

/// Does the TLS handshake with a client. Returns `None` if it fails; the client then receives the reason if possible.
pub(crate) async fn let_in(
    shared: &Arc<SharedServer>,
    identity: &TlsIdentity,
    protocol: Protocol,
    mut socket: TcpStream,
) -> Option<TlsConnection> {
    let (session, waiter) = (shared.node.next_session(), Waiter::new());
    let greets = protocol == Protocol::Nats && !identity.nats_first();
    let place = shared.admit(session, &waiter);
    // A node that is still starting does the handshake, so that it can refuse the client in the client's protocol.
    if place.is_none() && !shared.is_opening() {
        turn_away(shared, greets.then_some(session), &mut socket).await;
        return None;
    }
    let shaking = async {
        if greets {
            let mut info = Vec::new();
            nats::write_info(shared, Some(&socket), session, true, &mut info);
            socket.write_all(&info).await?;
        }
        if first_byte(&socket).await? != HANDSHAKE {
            return Ok(HandshakeOutcome::Plain(socket));
        }
        // The semaphore is never closed.
        let _turn = shared.handshakes.acquire().await;
        let codec = TlsCodec::server(identity.of(protocol)).map_err(io::Error::other)?;
        let mut tls = Box::new(TlsStream::new(socket, codec));
        let shaken = poll_fn(|cx| poll_shake(&mut tls, cx)).await;
        Ok(HandshakeOutcome::Tls(tls, shaken))
    };
    let patience = Duration::from_millis(shared.limits.handshake_ms_max.into());
    match unless_stopped(shared, &waiter, timeout(patience, shaking)).await? {
        Ok(Ok(HandshakeOutcome::Tls(tls, Ok(())))) => {
            let stream = Stream::Tls(tls);
            if let Some(certificate) = stream.client_certificate() {
                let ClientCertificate { subject, names, .. } = certificate;
                tracing::debug!(%protocol, session, subject, ?names, "a client authenticated itself with a certificate");
            }
            Some(TlsConnection { stream, told: greets.then_some(session) })
        }
        Ok(Ok(HandshakeOutcome::Tls(tls, Err(error)))) => {
            let peer = tls.socket().peer_addr().ok();
            tracing::info!(%protocol, ?peer, "TLS handshake failed: {}", explain(&error));
            let _ = timeout(FAREWELL, part(tls)).await;
            None
        }
        Ok(Ok(HandshakeOutcome::Plain(mut socket))) => {
            tracing::info!(%protocol, peer = ?socket.peer_addr().ok(), "a client without TLS was refused");
            refuse_in_plain(protocol, &mut socket, &Refused::new(ErrorCode::TlsRequired, "")).await;
            None
        }
        Ok(Err(error)) => {
            tracing::debug!(%protocol, "TLS handshake failed: {}", explain(&error));
            None
        }
        Err(_) => {
            tracing::info!(%protocol, "a TLS handshake took longer than {patience:?}");
            None
        }
    }
}

enum HandshakeOutcome {
    Tls(Box<TlsStream>, io::Result<()>),
    /// A connection without TLS: the client does not use it.
    Plain(TcpStream),
}

async fn first_byte(socket: &TcpStream) -> io::Result<u8> {
    let mut first = [0];
    match socket.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0]),
    }
}

/// Continues the handshake, for either side of the connection.
pub(crate) fn poll_shake(tls: &mut TlsStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    let mut said = [0; 1 << 10];
    while !tls.is_established() {
        std::task::ready!(tls.poll_writable(cx))?;
        if tls.is_established() {
            break;
        }
        match tls.read(&mut said) {
            Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            // The peer's first data arrived together with the end of the handshake.
            Ok(read) => tls.give_back(&said[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if tls.is_established() {
                    break;
                }
                std::task::ready!(tls.poll_came(cx))?;
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}

/// Waits, so that the client can read the alert that was sent.
async fn part(mut tls: Box<TlsStream>) -> io::Result<()> {
    poll_fn(|cx| tls.poll_writable(cx)).await?;
    tls.end_writing()?;
    hear_out(tls.socket()).await
}

/// Reads and discards the client's data until the client has closed its side. Closing a socket that has unread bytes
/// would discard output that is still being sent.
async fn hear_out(socket: &TcpStream) -> io::Result<()> {
    let mut bin = [0; 4 << 10];
    let mut unheard = 0;
    while unheard < UNHEARD_BYTES_MAX {
        socket.readable().await?;
        match socket.try_read(&mut bin) {
            Ok(0) => break,
            Ok(read) => unheard += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the future's output, or `None` if the server stops first.
async fn unless_stopped<T>(
    shared: &SharedServer,
    waiter: &Waiter,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = std::pin::pin!(future);
    poll_fn(|cx| {
        while !shared.is_stopping() {
            if waiter.set_waker(cx.waker()) {
                return future.as_mut().poll(cx).map(Some);
            }
            waiter.take_ready(|_| ());
        }
        Poll::Ready(None)
    })
    .await
}

/// Refuses a client because the limit of sessions is reached. A client that expects plain text (it has the session's
/// number `told`) receives text; any other client receives a TLS alert.
async fn turn_away(shared: &SharedServer, told: Option<u64>, socket: &mut TcpStream) {
    let mut said = Vec::new();
    match told {
        Some(session) => {
            nats::write_info(shared, Some(socket), session, true, &mut said);
            said.extend(nats::refusal(&shared.no_place()));
        }
        None => said.extend(NO_PLACE),
    }
    say_and_part(socket, &said).await;
}

/// Refuses a client in its own protocol, without TLS.
async fn refuse_in_plain(protocol: Protocol, socket: &mut TcpStream, refused: &Refused) {
    let said = match protocol {
        Protocol::Tcp => {
            let mut said = Preamble::OURS.to_bytes().to_vec();
            FromNode::Refused(refused.as_wire()).encode(&mut said);
            said
        }
        Protocol::Nats => nats::refusal(refused),
        Protocol::Http | Protocol::Ws => http::refusal(refused.clone()).into_bytes(),
        Protocol::Grpc => grpc::refusal(refused),
    };
    say_and_part(socket, &said).await;
}

async fn say_and_part(socket: &mut TcpStream, said: &[u8]) {
    // Limits the wait for a client that does not read the refusal.
    let _ = timeout(FAREWELL, async {
        socket.write_all(said).await?;
        socket.shutdown().await?;
        hear_out(socket).await
    })
    .await;
}
