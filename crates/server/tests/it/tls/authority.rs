//! A certificate authority for tests, which issues certificates for nodes and clients.

use std::path::PathBuf;

use dunlin_client::tls::TlsOptions;
use dunlin_server::TlsConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;

/// A certificate authority, and the directory with its files.
pub struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its private key, both in PEM.
pub struct SignedCertificate {
    pub cert: String,
    pub key: String,
}

impl Authority {
    /// Creates an authority, and a certificate for `localhost` in the file `server.pem`.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Authority { dir: TempDir::new().unwrap(), issuer };
        authority.write("ca.pem", &authority.ca());
        authority.write_certificate("server", &authority.sign("localhost"));
        authority
    }

    pub fn ca(&self) -> String {
        self.issuer.pem()
    }

    pub fn sign(&self, name: &str) -> SignedCertificate {
        self.sign_with(name, |_| ())
    }

    pub fn sign_expired(&self, name: &str) -> SignedCertificate {
        self.sign_with(name, |params| {
            (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        })
    }

    /// Signs a certificate for this name after `change` has changed it.
    pub fn sign_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> SignedCertificate {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        SignedCertificate { cert, key: key.serialize_pem() }
    }

    /// Writes a certificate to `NAME.pem`, and its key to `NAME-key.pem`.
    pub fn write_certificate(&self, name: &str, signed: &SignedCertificate) {
        self.write(&format!("{name}-key.pem"), &signed.key);
        self.write(&format!("{name}.pem"), &signed.cert);
    }

    /// Replaces a file in one step by renaming, as tools that renew certificates do.
    pub fn write(&self, name: &str, text: &str) {
        let temporary = self.path(&format!("{name}.new"));
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(temporary, self.path(name)).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The TLS configuration for a node. If `mutual` is true, clients need a certificate.
    pub fn tls(&self, mutual: bool) -> TlsConfig {
        TlsConfig {
            cert: self.path("server.pem"),
            key: self.path("server-key.pem"),
            client_ca: mutual.then(|| self.path("ca.pem")),
            nats_first: false,
        }
    }

    /// The TLS options for a client that has no certificate.
    pub fn client_options(&self) -> TlsOptions {
        let mut options = TlsOptions::default();
        options.ca = Some(self.ca().into_bytes());
        options
    }

    /// The TLS options for a client that has this certificate.
    pub fn with_certificate(&self, signed: &SignedCertificate) -> TlsOptions {
        let mut options = self.client_options();
        options.cert = Some(signed.cert.clone().into_bytes());
        options.key = Some(signed.key.clone().into_bytes());
        options
    }
}
