//! Accepts clients' connections and starts their sessions.
//!
//! Limits: `sessions_max` sessions. While the process has no free file descriptor, the listener accepts nothing, and
//! new connections wait in the kernel's queue.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dunlin::steady_ns;
use socket2::{Domain, Socket, Type};

use crate::accept_failures::AcceptFailures;
use crate::grpc;
use crate::http;
use crate::nats;
use crate::protocol::Protocol;
use crate::runtime::Core;
use crate::shared::SharedServer;
use crate::stream::{AcceptedSocket, Stream};
use crate::tcp;
use crate::tls::{TlsConnection, accept_tls};

/// Pause after a failed attempt to accept a connection.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Length of the kernel's queue of connections to be accepted. It is long because thousands of clients may reconnect at
/// once.
const BACKLOG: i32 = 4_096;

/// A listening socket, and the protocol that is served there.
#[derive(Debug)]
pub(crate) struct Listener {
    protocol: Protocol,
    socket: ListeningSocket,
}

#[derive(Debug)]
enum ListeningSocket {
    Tcp(std::net::TcpListener),
    Unix(UnixListener),
}

enum AsyncListener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Listener {
    pub(crate) fn bind_tcp(protocol: Protocol, address: SocketAddr) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Listener { protocol, socket: ListeningSocket::Tcp(socket.into()) })
    }

    pub(crate) fn bind_unix(protocol: Protocol, path: &Path) -> io::Result<Listener> {
        let bound = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale_socket(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            other => other,
        };
        let listener = bound?;
        listener.set_nonblocking(true)?;
        Ok(Listener { protocol, socket: ListeningSocket::Unix(listener) })
    }

    /// Creates a second handle for the same socket.
    pub(crate) fn try_clone(&self) -> io::Result<Listener> {
        let socket = match &self.socket {
            ListeningSocket::Tcp(listener) => ListeningSocket::Tcp(listener.try_clone()?),
            ListeningSocket::Unix(listener) => ListeningSocket::Unix(listener.try_clone()?),
        };
        Ok(Listener { protocol: self.protocol, socket })
    }

    /// The protocol, and the address with the port that was actually chosen; `None` for a Unix socket.
    pub(crate) fn address(&self) -> Option<(Protocol, SocketAddr)> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => {
                listener.local_addr().ok().map(|address| (self.protocol, address))
            }
            ListeningSocket::Unix(_) => None,
        }
    }
}

/// Whether the file is a socket that no process listens on. The file type is checked too: connecting to another kind of
/// file fails in the same way, and such a file must not be removed.
fn is_stale_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Accepts connections until this task is aborted or its thread ends.
pub(crate) async fn accept(listener: Listener, shared: Arc<SharedServer>, cores: Vec<Core>) {
    let protocol = listener.protocol;
    let listener_socket = match listener.socket {
        ListeningSocket::Tcp(listener) => tokio::net::TcpListener::from_std(listener).map(AsyncListener::Tcp),
        ListeningSocket::Unix(listener) => {
            tokio::net::UnixListener::from_std(listener).map(AsyncListener::Unix)
        }
    };
    let listener_socket = match listener_socket {
        Ok(listener_socket) => listener_socket,
        Err(error) => return tracing::error!(%error, "cannot accept connections at a listener"),
    };
    let mut failures = AcceptFailures::default();
    loop {
        match listener_socket.accept().await {
            Ok(accepted) => {
                let core = choose_core(&cores, shared.limits.sessions_before_spreading);
                start_session(protocol, core, &shared, accepted);
            }
            // The client disconnected before its connection was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                let now_ns = steady_ns();
                shared.accept_status.record_failure(&error, now_ns);
                if let Some(count) = failures.count(now_ns) {
                    tracing::warn!(%error, count, "cannot accept connections; retrying");
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

impl AsyncListener {
    async fn accept(&self) -> io::Result<AcceptedSocket> {
        match self {
            AsyncListener::Tcp(listener) => AcceptedSocket::tcp(listener.accept().await?.0),
            AsyncListener::Unix(listener) => AcceptedSocket::unix(listener.accept().await?.0),
        }
    }
}

/// Returns the first core while it has fewer than `spread_above` sessions. Otherwise, returns the core with the fewest
/// sessions.
fn choose_core(cores: &[Core], spread_above: usize) -> &Core {
    let first = &cores[0];
    if first.load() < spread_above {
        return first;
    }
    cores.iter().min_by_key(|core| core.load()).unwrap_or(first)
}

/// Starts the session of an accepted connection on the thread of `core`.
fn start_session(protocol: Protocol, core: &Core, shared: &Arc<SharedServer>, accepted: AcceptedSocket) {
    let slot = core.reserve_slot();
    let shared = Arc::clone(shared);
    core.handle.spawn(async move {
        let _slot = slot;
        let open_connection = shared.traffic.count_accepted(protocol);
        // If this fails, the connection is already broken, and there is nobody to send an error to.
        let Ok(stream) = Stream::new(accepted) else { return };
        // The future of the handshake is boxed, because it would otherwise enlarge the future of every session.
        let (stream, announced) = match (&shared.tls, stream) {
            (Some(identity), Stream::Tcp(socket)) => {
                match Box::pin(accept_tls(&shared, identity, protocol, socket)).await {
                    Some(TlsConnection { stream, announced }) => (stream, announced),
                    None => return,
                }
            }
            (_, stream) => (stream, None),
        };
        match protocol {
            Protocol::Tcp => tcp::Session::begin(shared, stream).await,
            Protocol::Nats => nats::Session::begin(shared, stream, announced).await,
            Protocol::Http | Protocol::Ws => http::serve(shared, stream, open_connection).await,
            Protocol::Grpc => grpc::serve(shared, stream).await,
        }
    });
}
