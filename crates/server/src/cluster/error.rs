//! The errors of cluster commands, and of a node that starts as a member of a cluster.

/// The reason why a cluster command failed, or why a node could not start as a member of its cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// Files of the cluster cannot be used, or a request to the cluster failed.
    #[error("{0}")]
    Files(String),
    /// A node of the cluster, or a check on this node, refused the request.
    #[error("{0}")]
    Refused(String),
    /// The data directory is not that of a cluster's node.
    #[error(
        "{} is not the data directory of a cluster's node: the node is not part of a cluster; give the directory of a \
         member, or begin a new cluster with `dunlin cluster init`, see docs/operations.md",
        .0.display()
    )]
    NoCluster(std::path::PathBuf),
    /// A node of the cluster is unreachable.
    #[error("cannot reach {address}: {why}")]
    Unreachable {
        /// Address of the unreachable node.
        address: String,
        /// The reason why the node is unreachable.
        why: String,
    },
    /// The caller cancelled joining.
    #[error("joining was cancelled")]
    JoinCancelled,
    /// The text is not a join token.
    #[error(
        "invalid join token: expected one line that begins with {}, as `dunlin cluster token` prints it",
        super::token::PREFIX
    )]
    NoToken,
    /// The node cannot listen on the address for other nodes.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address on which the node tried to listen.
        address: std::net::SocketAddr,
        /// The error of the system call.
        error: std::io::Error,
    },
    /// A node's certificate could not be issued.
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
        /// Description of the failed operation.
        what: String,
        /// The error of the system call.
        error: std::io::Error,
    },
}

impl ClusterError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ClusterError {
        let what = what.into();
        move |error| ClusterError::Io { what, error }
    }
}
