//! The TLS options of a client, and texts that explain TLS errors.
//!
//! The library rustls implements TLS 1.2 and 1.3, with the cryptography of the library ring. The node's certificate
//! must be signed by a trusted authority, and must be valid for the host of the URL. This check cannot be turned off.
//!
//! [`TlsCodec`] encrypts and decrypts the bytes of one connection. Clients and the listeners of nodes use it.

mod codec;

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};

pub use codec::{TlsCodec, UNSENT_BYTES_MAX};

/// The application protocol (ALPN) of a connection that uses Dunlin's own protocol.
pub const PROTOCOL: &[u8] = b"dunlin";

/// The TLS options for `tls://` addresses: the trusted authorities and the client's certificate, as PEM texts.
#[derive(Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TlsOptions {
    /// The certificates of the trusted authorities; `None` for the authorities that the operating system trusts.
    pub ca: Option<Vec<u8>>,
    /// The client's certificate, followed by the certificates that link it to an authority.
    pub cert: Option<Vec<u8>>,
    /// The private key of the client's certificate.
    pub key: Option<Vec<u8>>,
    /// The name for which the node's certificate must be valid; `None` for the host of the address.
    pub name: Option<String>,
}

impl fmt::Debug for TlsOptions {
    /// Prints the options without the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masked = |pem: &Option<Vec<u8>>| pem.as_ref().map(|_| "PEM");
        let key = self.key.as_ref().map(|_| "secret");
        f.debug_struct("TlsOptions")
            .field("ca", &masked(&self.ca))
            .field("cert", &masked(&self.cert))
            .field("key", &key)
            .field("name", &self.name)
            .finish()
    }
}

/// Why the TLS options are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The text of an option is not valid PEM.
    #[error("{what}: {why}")]
    Pem {
        /// The name of this option.
        what: &'static str,
        /// Why its text is invalid.
        why: String,
    },
    /// The options have a certificate without a key, or a key without a certificate.
    #[error("a client certificate and its key belong together: give both or neither")]
    CertWithoutKey,
    /// The key does not belong to the certificate, or it cannot be used.
    #[error("cannot use the client certificate and its key: {0}")]
    CertAndKey(String),
    /// The options name no trusted authorities, and the operating system has none.
    #[error(
        "the system has no trusted certificate authorities ({0}): give the certificate of the node's authority as the CA file"
    )]
    NoRoots(String),
    /// The host of the address is not a valid name for a certificate.
    #[error("{0:?} is not a valid name in a certificate")]
    Host(String),
}

/// Returns the cryptography provider that clients and listeners use for TLS.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())))
}

/// Returns the clock with which clients and listeners check whether certificates have expired.
pub fn clock() -> Arc<dyn TimeProvider> {
    Arc::new(TlsClock)
}

/// The system's time. Times before 1970 count as 1970: the clock of rustls itself would panic.
#[derive(Debug)]
struct TlsClock;

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix_time(SystemTime::now()))
    }
}

fn unix_time(now: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Returns the certificates in a PEM text. Fails if there is none.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => {
            Err("the file has no certificate (PEM begins with -----BEGIN CERTIFICATE-----)".into())
        }
        Ok(all) => Ok(all),
        Err(error) => Err(format!("the file is not PEM: {error}")),
    }
}

/// Returns the private key in a PEM text.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => {
            "the file has no private key (PEM begins with -----BEGIN PRIVATE KEY-----; keys with a password are not supported)".into()
        }
        error => format!("not PEM: {error}"),
    })
}

/// Returns a store of trusted authorities with the certificates in a PEM text.
pub fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|error| format!("a certificate is invalid: {error}"))?;
    }
    Ok(roots)
}

/// The TLS configuration with which a client connects to one host.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Connector {
    pub(crate) fn new(options: &TlsOptions, host: &str) -> Result<Connector, TlsError> {
        let pem = |what| move |why| TlsError::Pem { what, why };
        let roots = match &options.ca {
            Some(ca) => authorities(ca).map_err(pem("the CA file"))?,
            None => system_roots()?,
        };
        let host = options.name.as_deref().unwrap_or(host).trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Host(host.to_owned()))?;
        // This call always succeeds, because ring supports TLS 1.2 and TLS 1.3.
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::CertAndKey(error.to_string()))?
            .with_root_certificates(roots);
        let mut config = match (&options.cert, &options.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let chain = certificates(cert).map_err(pem("the client certificate"))?;
                let key = private_key(key).map_err(pem("the client certificate's key"))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| TlsError::CertAndKey(mismatch(&error)))?
            }
            _ => return Err(TlsError::CertWithoutKey),
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.time_provider = clock();
        Ok(Connector { config: Arc::new(config), name })
    }

    pub(crate) fn begin(&self) -> io::Result<TlsCodec> {
        TlsCodec::client(Arc::clone(&self.config), self.name.clone()).map_err(io::Error::other)
    }
}

/// Returns a text that explains why a certificate and a key cannot be used together.
pub fn mismatch(error: &Error) -> String {
    match error {
        Error::InconsistentKeys(_) => "the key does not belong to the certificate".to_owned(),
        error => error.to_string(),
    }
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    static ROOTS: OnceLock<Result<RootCertStore, String>> = OnceLock::new();
    let found = ROOTS.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        let why = found.errors.first().map_or_else(|| "the system has none".to_owned(), ToString::to_string);
        if added > 0 { Ok(roots) } else { Err(why) }
    });
    found.clone().map_err(TlsError::NoRoots)
}

/// Returns a text that explains a TLS error of a connection to a node and, where possible, says what to do.
pub(crate) fn explain(error: &Error) -> String {
    let certificate = "the node's certificate";
    match error {
        Error::InvalidCertificate(wrong) => match wrong {
            // `BadSignature` means that a trusted authority has the same name as the authority that signed the
            // certificate, but another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                "{certificate} is signed by an authority that is not trusted here; to trust it, give its certificate as the CA file"
            ),
            CertificateError::NotValidForNameContext { expected, presented } => format!(
                "{certificate} is for {}, not for {}: connect with a name in the certificate, or create a \
                 certificate for this name",
                if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") },
                expected.to_str()
            ),
            CertificateError::NotValidForName => format!("{certificate} is for another name"),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("{certificate} has expired: {wrong}")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("{certificate} is not valid yet, or the clock here is wrong: {wrong}")
            }
            wrong => format!("{certificate} cannot be trusted: {wrong}"),
        },
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => {
                "the node requires a client certificate: give one, with its key".to_owned()
            }
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError => {
                format!(
                    "the node does not accept the client's certificate ({alert:?}): it must be signed by the authority in the node's client_ca"
                )
            }
            AlertDescription::CertificateExpired => "the client's certificate has expired".to_owned(),
            AlertDescription::NoApplicationProtocol => {
                "that address speaks TLS, but not Dunlin's own protocol: it may be another listener's"
                    .to_owned()
            }
            AlertDescription::InternalError => {
                "the node ended the TLS connection: it may have reached its limit of connections".to_owned()
            }
            alert => format!("the node ended the TLS connection: {alert:?}"),
        },
        error => format!("TLS: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_time_before_1970_counts_as_1970() {
        let epoch = UnixTime::since_unix_epoch(std::time::Duration::ZERO);
        assert_eq!(unix_time(UNIX_EPOCH - std::time::Duration::from_secs(5)), epoch);
        let later = UnixTime::since_unix_epoch(std::time::Duration::from_secs(5));
        assert_eq!(unix_time(UNIX_EPOCH + std::time::Duration::from_secs(5)), later);
    }
}
