use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::access::UsersError;
use crate::tls::TlsError;

/// Why the doors did not open.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// Other machines reach the address, and nobody said that they may.
    #[error(
        "{0} is reached from other machines, and the door has no encryption, or no check of who connects: \
         listen on 127.0.0.1, give tls with a client_ca, or say anyone_on_the_network_may_connect"
    )]
    OffLoopback(SocketAddr),
    /// TLS cannot be had as it is configured.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The address cannot be listened on.
    #[error("listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The Unix socket cannot be listened on.
    #[error("listen on {path}: {error}", path = path.display())]
    ListenUnix {
        /// The socket's path.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The users file is not sound.
    #[error("users: {0}")]
    Users(#[from] UsersError),
    /// A thread or its runtime cannot be started.
    #[error("start thread {name}: {error}")]
    Thread {
        /// The thread.
        name: String,
        /// What the system says.
        error: io::Error,
    },
}
