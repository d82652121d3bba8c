//! TLS for the listeners: reads the certificates, and does the handshakes with clients.
//!
//! TLS 1.2 and 1.3 are provided by rustls with ring. The module `files` reads certificates and keys, `handshake` does
//! the handshake of a connection, `permits` limits the number of handshakes, and `identity` reads the names in a
//! client's certificate. After the files were read again, new connections use the new files, and open connections
//! continue unchanged.
//!
//! Unix sockets have no TLS. The permissions of their directory decide which users of the machine may connect.

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

/// Paths of the files with a node's certificates and key. All files are in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// Path of the file with the node's certificate chain.
    pub cert: PathBuf,
    /// Path of the file with the private key of the node's certificate.
    pub key: PathBuf,
    /// Path of the file with the authorities that issue client certificates. If set, every client must show a
    /// certificate from one of them.
    pub client_ca: Option<PathBuf>,
    /// Whether a NATS connection begins with the TLS handshake, before the server's `INFO`. Clients then need the
    /// option `tls_first`.
    pub nats_first: bool,
}
