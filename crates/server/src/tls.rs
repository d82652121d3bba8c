//! TLS for the listeners: the files, and the handshake with clients.
//!
//! TLS 1.2 and 1.3 by rustls with ring. `files` reads the certificates and keys, `handshake` accepts a connection,
//! `permits` limits the handshakes, and `identity` reads the names in a client's certificate. When the files
//! are read again, open connections continue unchanged, and new ones use the new files.
//!
//! Unix sockets have no TLS: the permissions of their directory decide which users may connect.

mod files;
mod handshake;
mod identity;
mod permits;

use std::path::PathBuf;

pub use files::TlsFilesError;
pub(crate) use files::TlsIdentity;
pub(crate) use handshake::{TlsConnection, accept_tls, poll_handshake};
pub(crate) use identity::ClientCertificate;
pub(crate) use permits::HandshakePermits;

/// The paths of a node's TLS files, all PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The node's certificate chain.
    pub cert: PathBuf,
    /// The key of the node's certificate, as a PEM file.
    pub key: PathBuf,
    /// Authorities of client certificates. If set, every client must have a certificate that one of them signed.
    pub client_ca: Option<PathBuf>,
    /// Whether NATS connections begin with TLS instead of `INFO`. Clients then need the option `tls_first`.
    pub nats_first: bool,
}
