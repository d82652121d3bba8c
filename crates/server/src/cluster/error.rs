//! Errors of cluster commands and of a node's start in its cluster.

/// The reason why a cluster command failed, or why a node could not start in its cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The cluster's files cannot be used, or a request to the cluster failed.
    #[error("{0}")]
    Files(String),
    /// A node or a check refused the request.
    #[error("{0}")]
    Refused(String),
    /// A node is unreachable.
    #[error("cannot reach {address}: {why}")]
    Unreachable {
        /// The node's address.
        address: String,
        /// The cause.
        why: String,
    },
    /// Joining was cancelled.
    #[error("joining was cancelled")]
    JoinCancelled,
    /// The text is not a join token.
    #[error(
        "invalid join token: expected one line that begins with {}, as `dunlin cluster token` prints it",
        super::token::PREFIX
    )]
    NoToken,
    /// Listening on the cluster's port failed.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
    /// A certificate could not be issued.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be configured.
    #[error("cannot configure TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The state of keys, leases and locks cannot be used.
    #[error(transparent)]
    Control(#[from] dunlin::ControlError),
    /// A system call failed.
    #[error("{what}: {error}")]
    Io {
        /// The failed operation.
        what: String,
        /// The system's error.
        error: std::io::Error,
    },
}

impl ClusterError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ClusterError {
        let what = what.into();
        move |error| ClusterError::Io { what, error }
    }
}
