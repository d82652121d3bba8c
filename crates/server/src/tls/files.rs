//! Reads the node's certificate and key, and the authorities that issue client certificates.
//!
//! If the files become invalid while the node runs, their last valid content remains in use.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin_client::tls::{self, authorities, certificates, private_key};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use thiserror::Error;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::TlsConfig;
use crate::protocol::Protocol;
use crate::reload::Reload;
use crate::whole_file::read_file;

/// If a certificate is valid for less than this time, the log contains a warning.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 24 * 3_600);
/// Permission bits for users other than the file's owner and group.
const OTHER_USERS: u32 = 0o007;

/// The reason why the node's TLS files cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsFilesError {
    /// A file could not be read.
    #[error("cannot read {what} {}: {error}", path.display())]
    Read {
        /// The purpose of the file, such as `certificate`.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error of the system call.
        error: std::io::Error,
    },
    /// The content of a file is invalid.
    #[error("cannot use {what} {}: {why}", path.display())]
    Content {
        /// The purpose of the file, such as `certificate`.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// Description of the fault.
        why: String,
    },
    /// The key cannot be used, or does not match the certificate.
    #[error("cannot use the certificate {} with the key {}: {why}", cert.display(), key.display())]
    Pair {
        /// The path of the certificate's file.
        cert: PathBuf,
        /// The path of the key's file.
        key: PathBuf,
        /// Description of the fault.
        why: String,
    },
}

/// The TLS configuration that is read from the node's certificate, its key and the clients' authorities.
#[derive(Debug)]
pub(crate) struct TlsIdentity {
    files: TlsConfig,
    current: RwLock<TlsConfigs>,
}

/// The TLS configurations for new connections, one for each protocol.
#[derive(Debug)]
struct TlsConfigs {
    dunlin: Arc<ServerConfig>,
    nats: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
}

impl TlsIdentity {
    pub(crate) fn read(files: TlsConfig) -> Result<TlsIdentity, TlsFilesError> {
        let current = RwLock::new(TlsConfigs::read(&files)?);
        Ok(TlsIdentity { files, current })
    }

    pub(crate) fn config_for(&self, protocol: Protocol) -> Arc<ServerConfig> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(match protocol {
            Protocol::Tcp => &current.dunlin,
            Protocol::Nats => &current.nats,
            Protocol::Http | Protocol::Ws => &current.http,
            Protocol::Grpc => &current.grpc,
        })
    }

    /// Whether every client must show a certificate.
    pub(crate) fn requires_client_certificates(&self) -> bool {
        self.files.client_ca.is_some()
    }

    pub(crate) fn nats_first(&self) -> bool {
        self.files.nats_first
    }
}

impl Reload for TlsIdentity {
    fn name(&self) -> &'static str {
        "TLS certificates"
    }

    fn files(&self) -> Vec<PathBuf> {
        let TlsConfig { cert, key, client_ca, .. } = &self.files;
        [Some(cert), Some(key), client_ca.as_ref()].into_iter().flatten().cloned().collect()
    }

    fn reload(&self) -> Result<(), String> {
        let read = TlsConfigs::read(&self.files).map_err(|error| error.to_string())?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }
}

impl TlsConfigs {
    fn read(files: &TlsConfig) -> Result<TlsConfigs, TlsFilesError> {
        let chain = parse("certificate", &files.cert, certificates)?;
        let key = parse("key", &files.key, private_key)?;
        warn_if_world_readable(&files.key);
        warn_if_not_valid(&files.cert, &chain[0]);
        let pair = |why| TlsFilesError::Pair { cert: files.cert.clone(), key: files.key.clone(), why };
        let builder = ServerConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| pair(error.to_string()))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(parse("client_ca", path, authorities)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, tls::provider()).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| TlsFilesError::Content {
                    what: "client_ca",
                    path: path.clone(),
                    why: error.to_string(),
                })?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| pair(tls::mismatch(&error)))?;
        config.time_provider = tls::clock();
        let with_alpn = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Ok(TlsConfigs {
            dunlin: with_alpn(&[tls::PROTOCOL]),
            // NATS clients select no protocol by ALPN.
            nats: with_alpn(&[]),
            http: with_alpn(&[b"http/1.1"]),
            grpc: with_alpn(&[b"h2"]),
        })
    }
}

fn parse<T>(
    what: &'static str,
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<T, TlsFilesError> {
    let pem = read_file(path).map_err(|error| TlsFilesError::Read { what, path: path.to_owned(), error })?;
    parse(&pem).map_err(|why| TlsFilesError::Content { what, path: path.to_owned(), why })
}

fn warn_if_world_readable(key: &Path) {
    if let Ok(metadata) = std::fs::metadata(key)
        && metadata.permissions().mode() & OTHER_USERS != 0
    {
        let key = key.display();
        tracing::warn!("every user of this machine can read the TLS key {key}: run `chmod 600 {key}`");
    }
}

/// Logs a warning if a certificate is not valid now, or expires soon.
fn warn_if_not_valid(path: &Path, certificate: &CertificateDer<'_>) {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return };
    let validity = parsed.validity();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    let (path, until) = (path.display(), validity.not_after);
    if now < validity.not_before.timestamp() {
        tracing::warn!(
            "the certificate {path} is not valid before {}: clients refuse it",
            validity.not_before
        );
    } else if now > until.timestamp() {
        tracing::warn!("the certificate {path} expired on {until}: clients refuse it");
    } else if now + EXPIRY_WARNING.as_secs() as i64 > until.timestamp() {
        tracing::warn!("the certificate {path} expires soon, on {until}");
    }
}
