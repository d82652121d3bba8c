//! Does the TLS handshake of a new connection.
//!
//! Limits: `handshake_ms_max` for the whole handshake. During the handshake, the connection already counts as a session
//! (`sessions_max`), and needs the memory of [`TlsCodec`]. A few connections beyond `sessions_max` may send a health
//! probe. At most `handshakes_max` handshakes run at the same time, and at most half of them with clients of one
//! address. Other clients wait within the same time limit.

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
use crate::nats::{self, AnnouncedInfo};
use crate::protocol::Protocol;
use crate::shared::SharedServer;
use crate::stream::{Stream, TlsStream, explain};

/// The first byte of every TLS handshake.
const HANDSHAKE: u8 = 0x16;
/// A fatal TLS alert with the code `internal_error`. TLS has no alert for a reached limit of connections, and this
/// alert comes closest.
const CONNECTION_LIMIT_ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 80];
/// How long a refused client may take to read the refusal.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of bytes from a refused client that are read and discarded before the connection is closed.
const DISCARDED_BYTES_MAX: usize = 256 << 10;

/// A connection whose TLS handshake is complete.
pub(crate) struct TlsConnection {
    pub(crate) stream: Stream,
    /// The INFO that the client has already received; `None` if it has received none.
    pub(crate) announced: Option<AnnouncedInfo>,
}

/// Does the TLS handshake with a client. If it fails, returns `None`, after an attempt to inform the client of the
/// reason.
pub(crate) async fn accept_tls(
    shared: &Arc<SharedServer>,
    identity: &TlsIdentity,
    protocol: Protocol,
    mut socket: TcpStream,
) -> Option<TlsConnection> {
    let (session, waiter) = (shared.node.next_session(), Waiter::new());
    let sends_info = protocol == Protocol::Nats && !identity.nats_first();
    let addresses = if sends_info { shared.nats_addresses(protocol) } else { Vec::new() };
    let guard = shared.admit(session, &waiter);
    let may_probe = guard.is_none() && protocol == Protocol::Http;
    let probe_slot = if may_probe { shared.reserve_probe_slot() } else { None };
    // A starting node also does the handshake, so that it can then refuse the client in the client's own protocol.
    if guard.is_none() && probe_slot.is_none() && !shared.is_opening() {
        refuse_over_limit(shared, sends_info.then_some(session), &mut socket).await;
        return None;
    }
    let handshake = async {
        if sends_info {
            let mut info = Vec::new();
            nats::write_info(shared, &addresses, Some(&socket), session, true, &mut info);
            socket.write_all(&info).await?;
        }
        if first_byte(&socket).await? != HANDSHAKE {
            return Ok(HandshakeOutcome::Plain(socket));
        }
        let address = socket.peer_addr().ok().map(|address| address.ip());
        let _permit = shared.handshakes.acquire(address).await;
        let codec = TlsCodec::server(identity.config_for(protocol)).map_err(io::Error::other)?;
        let mut tls = Box::new(TlsStream::new(socket, codec));
        let result = poll_fn(|cx| poll_handshake(&mut tls, cx)).await;
        Ok(HandshakeOutcome::Tls(tls, result))
    };
    let handshake_max = Duration::from_millis(shared.limits.handshake_ms_max.into());
    let outcome = until_stopped(shared, &waiter, timeout(handshake_max, handshake)).await?;
    match outcome {
        Ok(Ok(HandshakeOutcome::Tls(tls, Ok(())))) => {
            let stream = Stream::Tls(tls);
            if let Some(certificate) = stream.client_certificate() {
                let ClientCertificate { subject, names, .. } = certificate;
                tracing::debug!(%protocol, session, subject, ?names, "a client authenticated itself with a certificate");
            }
            Some(TlsConnection {
                stream,
                announced: sends_info.then_some(AnnouncedInfo { session, addresses }),
            })
        }
        Ok(Ok(HandshakeOutcome::Tls(tls, Err(error)))) => {
            let peer = tls.socket().peer_addr().ok();
            tracing::info!(%protocol, ?peer, "TLS handshake failed: {}", explain(&error));
            let _ = timeout(CLOSE_TIMEOUT, close_after_alert(tls)).await;
            None
        }
        Ok(Ok(HandshakeOutcome::Plain(mut socket))) => {
            tracing::info!(%protocol, peer = ?socket.peer_addr().ok(), "a client without TLS was refused");
            refuse_without_tls(protocol, &mut socket, &Refused::new(ErrorCode::TlsRequired, "")).await;
            None
        }
        Ok(Err(error)) => {
            tracing::debug!(%protocol, "TLS handshake failed: {}", explain(&error));
            None
        }
        Err(_) => {
            tracing::info!(%protocol, "a TLS handshake took longer than {handshake_max:?}");
            None
        }
    }
}

enum HandshakeOutcome {
    Tls(Box<TlsStream>, io::Result<()>),
    /// The connection of a client that does not begin with a TLS handshake.
    Plain(TcpStream),
}

async fn first_byte(socket: &TcpStream) -> io::Result<u8> {
    let mut first = [0];
    match socket.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0]),
    }
}

/// Continues the handshake of a connection, as the accepting or the connecting side.
pub(crate) fn poll_handshake(tls: &mut TlsStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    let mut buffer = [0; 1 << 10];
    while !tls.is_established() {
        std::task::ready!(tls.poll_writable(cx))?;
        if tls.is_established() {
            break;
        }
        match tls.read(&mut buffer) {
            Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            // The last bytes of the handshake arrived together with the peer's first data, which must be kept.
            Ok(read) => tls.unread(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if tls.is_established() {
                    break;
                }
                std::task::ready!(tls.poll_socket_readable(cx))?;
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}

/// Sends the alert, and gives the client time to read it.
async fn close_after_alert(mut tls: Box<TlsStream>) -> io::Result<()> {
    poll_fn(|cx| tls.poll_writable(cx)).await?;
    tls.shutdown_write()?;
    drain(tls.socket()).await
}

/// Reads and discards the client's data until the client has closed its side, or until [`DISCARDED_BYTES_MAX`] bytes
/// were read. If a socket with unread bytes is closed, the system discards output that is in transit.
async fn drain(socket: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4 << 10];
    let mut discarded = 0;
    while discarded < DISCARDED_BYTES_MAX {
        socket.readable().await?;
        match socket.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => discarded += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits for the output of the future. Returns `None` if the server stops first.
async fn until_stopped<T>(
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

/// Refuses a client because there are too many sessions. If `announced_id` is set, the client has received INFO and
/// expects plain text, so the refusal is text. Other clients get a TLS alert.
async fn refuse_over_limit(shared: &SharedServer, announced_id: Option<u64>, socket: &mut TcpStream) {
    let mut out = Vec::new();
    match announced_id {
        Some(session) => {
            let addresses = shared.nats_addresses(Protocol::Nats);
            nats::write_info(shared, &addresses, Some(socket), session, true, &mut out);
            out.extend(nats::refusal(&shared.admission_refusal()));
        }
        None => out.extend(CONNECTION_LIMIT_ALERT),
    }
    send_and_close(socket, &out).await;
}

/// Refuses a client that does not use TLS, in the client's own protocol.
async fn refuse_without_tls(protocol: Protocol, socket: &mut TcpStream, refused: &Refused) {
    let out = match protocol {
        Protocol::Tcp => {
            let mut out = Preamble::OURS.to_bytes().to_vec();
            FromNode::Refused(refused.as_wire()).encode(&mut out);
            out
        }
        Protocol::Nats => nats::refusal(refused),
        Protocol::Http | Protocol::Ws => http::refusal(refused.clone()).into_bytes(),
        Protocol::Grpc => grpc::refusal(refused),
    };
    send_and_close(socket, &out).await;
}

async fn send_and_close(socket: &mut TcpStream, out: &[u8]) {
    // The time limit is needed for a client that does not read the refusal.
    let _ = timeout(CLOSE_TIMEOUT, async {
        socket.write_all(out).await?;
        socket.shutdown().await?;
        drain(socket).await
    })
    .await;
}
