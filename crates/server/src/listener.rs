//! Letting connections in.
//!
//! Limits: `sessions_max`. Where the process is out of file descriptors, accepting rests a moment:
//! connections wait in the kernel's queue meanwhile.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::door::Door;
use crate::grpc;
use crate::http;
use crate::nats;
use crate::runtime::Core;
use crate::shared::Shared;
use crate::stream::{Accepted, Stream};
use crate::tcp;
use crate::tls::{LetIn, let_in};

/// How long accepting rests after it failed.
const REST: Duration = Duration::from_millis(50);
/// Connections that the kernel keeps until they are accepted: thousands may come back at once.
const BACKLOG: i32 = 4_096;

/// A door's socket that listens.
#[derive(Debug)]
pub(crate) struct Listener {
    door: Door,
    socket: Listening,
}

#[derive(Debug)]
enum Listening {
    Tcp(std::net::TcpListener),
    Unix(UnixListener),
}

enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Listener {
    pub(crate) fn bind_tcp(door: Door, address: SocketAddr) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Listener { door, socket: Listening::Tcp(socket.into()) })
    }

    pub(crate) fn bind_unix(door: Door, path: &Path) -> io::Result<Listener> {
        let bound = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_behind(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            other => other,
        };
        let listener = bound?;
        listener.set_nonblocking(true)?;
        Ok(Listener { door, socket: Listening::Unix(listener) })
    }

    /// The same socket once more.
    pub(crate) fn try_clone(&self) -> io::Result<Listener> {
        let socket = match &self.socket {
            Listening::Tcp(listener) => Listening::Tcp(listener.try_clone()?),
            Listening::Unix(listener) => Listening::Unix(listener.try_clone()?),
        };
        Ok(Listener { door: self.door, socket })
    }

    /// The door, and the address with its real port.
    pub(crate) fn address(&self) -> Option<(Door, SocketAddr)> {
        match &self.socket {
            Listening::Tcp(listener) => listener.local_addr().ok().map(|address| (self.door, address)),
            Listening::Unix(_) => None,
        }
    }
}

/// Whether it is a socket at which nobody answers. Any other file refuses in the same way, and is somebody's.
fn is_left_behind(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Lets connections in until it is aborted or its thread ends.
pub(crate) async fn accept(listener: Listener, shared: Arc<Shared>, cores: Vec<Core>) {
    let door = listener.door;
    let accepting = match listener.socket {
        Listening::Tcp(listener) => tokio::net::TcpListener::from_std(listener).map(Accepting::Tcp),
        Listening::Unix(listener) => tokio::net::UnixListener::from_std(listener).map(Accepting::Unix),
    };
    let accepting = match accepting {
        Ok(accepting) => accepting,
        Err(error) => return tracing::error!(%error, "cannot listen"),
    };
    let mut resting = false;
    loop {
        match accepting.accept().await {
            Ok(accepted) => {
                resting = false;
                let core = choose(&cores, shared.limits.sessions_before_spreading);
                begin(door, core, &shared, accepted);
            }
            // The client went away again before it was its turn.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if !resting {
                    tracing::warn!(%error, "cannot accept connections; trying on");
                }
                resting = true;
                tokio::time::sleep(REST).await;
            }
        }
    }
}

impl Accepting {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Accepting::Tcp(listener) => Accepted::tcp(listener.accept().await?.0),
            Accepting::Unix(listener) => Accepted::unix(listener.accept().await?.0),
        }
    }
}

/// The first while it has few sessions, else the one with the fewest.
fn choose(cores: &[Core], before_spreading: usize) -> &Core {
    let first = &cores[0];
    if first.load() < before_spreading {
        return first;
    }
    cores.iter().min_by_key(|core| core.load()).unwrap_or(first)
}

/// Begins a session of the door on the thread of `core`.
fn begin(door: Door, core: &Core, shared: &Arc<Shared>, accepted: Accepted) {
    let seat = core.seat();
    let shared = Arc::clone(shared);
    core.handle.spawn(async move {
        let _seat = seat;
        let passage = shared.traffic.accepted(door);
        // The connection broke before it began: nobody is there to be told.
        let Ok(stream) = Stream::new(accepted) else { return };
        // In a box: sessions are not to be larger for it.
        let (stream, told) = match (&shared.tls, stream) {
            (Some(identity), Stream::Tcp(socket)) => {
                match Box::pin(let_in(&shared, identity, door, socket)).await {
                    Some(LetIn { stream, told }) => (stream, told),
                    None => return,
                }
            }
            (_, stream) => (stream, None),
        };
        match door {
            Door::Tcp => tcp::Session::begin(shared, stream).await,
            Door::Nats => nats::Session::begin(shared, stream, told).await,
            Door::Http | Door::Ws => http::serve(shared, stream, passage).await,
            Door::Grpc => grpc::serve(shared, stream).await,
        }
    });
}
