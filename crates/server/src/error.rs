use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::access::UsersError;
use crate::tls::TlsFilesError;

/// The reason why a node's listeners cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// Other machines can reach the address, but the configuration does not allow this.
    #[error(
        "other machines can reach {0} without encryption or without authentication: listen on 127.0.0.1, configure tls with a client_ca, or set anyone_on_the_network_may_connect"
    )]
    OffLoopback(SocketAddr),
    /// The TLS files are invalid.
    #[error("TLS: {0}")]
    Tls(#[from] TlsFilesError),
    /// Listening on the address failed.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// Listening on the Unix socket failed.
    #[error("cannot listen on {path}: {error}", path = path.display())]
    ListenUnix {
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The users file is invalid.
    #[error("users: {0}")]
    Users(#[from] UsersError),
    /// A thread or its runtime cannot be started.
    #[error("cannot start thread {name}: {error}")]
    Thread {
        /// The thread.
        name: String,
        /// The system's error.
        error: io::Error,
    },
}
