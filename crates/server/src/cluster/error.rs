//! Why a node does not take part in its cluster, and what to do.

/// See the module.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// What a directory holds of the cluster cannot be used.
    #[error("{0}")]
    Files(String),
    /// Somebody said no, and why.
    #[error("{0}")]
    Refused(String),
    /// Somebody could not be reached.
    #[error("cannot reach {address}: {why}")]
    Unreachable {
        /// Who.
        address: String,
        /// Why.
        why: String,
    },
    /// Whoever wanted to join does not any more.
    #[error("ended while it joined")]
    GivenUp,
    /// A token is not one.
    #[error(
        "this is no join token: `dunlin cluster token` makes them, one line that begins with {}",
        super::token::PREFIX
    )]
    NoToken,
    /// Its listener.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS cannot be had.
    #[error("cannot set TLS up: {0}")]
    Tls(#[from] rustls::Error),
    /// What all nodes agree on.
    #[error(transparent)]
    Control(#[from] dunlin::ControlError),
    /// The system.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What came of it.
        error: std::io::Error,
    },
}

impl ClusterError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ClusterError {
        let what = what.into();
        move |error| ClusterError::Io { what, error }
    }
}
