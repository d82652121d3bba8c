//! TLS for every door: its files, and letting clients in by it.
//!
//! TLS 1.2 and 1.3 by rustls, with the cryptography of ring. `files` is what is read, `handshake` how a connection begins,
//! `identity` who a client's certificate names. Connections that are open go on as they began when the files are read
//! again; those that begin later meet what was read last.
//!
//! Unix sockets are without TLS: who reaches them is on this machine, and the directory's permissions say who may.

mod files;
mod handshake;
mod identity;

use std::path::PathBuf;

pub(crate) use files::Identity;
pub use files::TlsError;
pub(crate) use handshake::{LetIn, let_in, poll_shake};
pub(crate) use identity::ClientCertificate;

/// The files of TLS, all PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The node's certificate, and those that lead to its authority.
    pub cert: PathBuf,
    /// The key of the node's certificate.
    pub key: PathBuf,
    /// Authorities of clients: with it every client has to show a certificate that one of them has signed.
    pub client_ca: Option<PathBuf>,
    /// Door `nats` begins with TLS instead of with `INFO`; clients have to be told so (`tls_first`).
    pub nats_first: bool,
}
