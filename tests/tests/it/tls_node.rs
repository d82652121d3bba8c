//! A node that runs in the test's process and whose NATS listener uses TLS. The node's certificate comes from an
//! authority that the test creates.

use std::path::{Path, PathBuf};

use dunlin::{Config, Node};
use dunlin_server::{Protocol, Server, ServerConfig, TlsConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

/// A node whose NATS listener uses TLS, and the directory of the node's certificates.
pub struct TlsNode {
    dir: TempDir,
    server: Server,
}

impl TlsNode {
    pub fn start() -> TlsNode {
        let dir = TempDir::new().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        // The names of the authority and of the node must differ. If they were equal, OpenSSL, which Python and Node.js
        // use, would take the node's certificate for a self-signed one.
        authority.distinguished_name.push(DnType::CommonName, "an authority of tests");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Python accepts an authority only if its certificate has this key usage.
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "localhost");
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let write = |name: &str, text: String| {
            let path: PathBuf = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        write("ca.pem", authority.pem());
        let tls = TlsConfig {
            cert: write("node.pem", params.signed_by(&key, &authority).unwrap().pem()),
            key: write("node-key.pem", key.serialize_pem()),
            client_ca: None,
            nats_first: false,
        };
        let nats = vec![([127, 0, 0, 1], 0).into()];
        let config = ServerConfig { nats, tls: Some(tls), ..ServerConfig::default() };
        let server = Server::start(Node::start(Config::default()).unwrap(), config).unwrap();
        TlsNode { dir, server }
    }

    pub fn nats_url(&self) -> String {
        let nats = self.server.addresses().iter().find(|(protocol, _)| *protocol == Protocol::Nats);
        format!("tls://localhost:{}", nats.unwrap().1.port())
    }

    pub fn ca(&self) -> PathBuf {
        Path::join(self.dir.path(), "ca.pem")
    }
}
