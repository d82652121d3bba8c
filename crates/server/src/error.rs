use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::access::UsersError;
use crate::tls::TlsFilesError;

/// The reason why a node's listeners cannot be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// Other machines can reach the address without encryption or without authentication, and the option that permits
    /// this is not set.
    #[error(
        "other machines can reach {0} without encryption or without authentication: listen on 127.0.0.1, configure tls with a client_ca, or set anyone_on_the_network_may_connect"
    )]
    OffLoopback(SocketAddr),
    /// The TLS files are invalid.
    #[error("TLS: {0}")]
    Tls(#[from] TlsFilesError),
    /// The node cannot listen on a TCP address.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address on which the node cannot listen.
        address: SocketAddr,
        /// The error of the system call.
        error: io::Error,
    },
    /// The node cannot listen on a Unix socket.
    #[error("cannot listen on {path}: {error}", path = path.display())]
    ListenUnix {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the system call.
        error: io::Error,
    },
    /// The users file is invalid.
    #[error("users: {0}")]
    Users(#[from] UsersError),
    /// A thread, or the async runtime on it, cannot be started.
    #[error("cannot start thread {name}: {error}")]
    Thread {
        /// The name of the thread.
        name: String,
        /// The error of the system call.
        error: io::Error,
    },
}
