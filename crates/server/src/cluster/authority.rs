//! The certificate authority of a cluster, which issues the nodes' certificates.
//!
//! Every node holds the authority's key. Each node can therefore admit new nodes, and issues a new certificate for
//! itself at each start. Certificates practically never expire: nodes check at each connection whether the other node
//! is a member.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};

use super::error::ClusterError;

/// First and last year in which a certificate is valid.
const YEARS: (i32, i32) = (2020, 2120);

/// The certificate and private key of a cluster's authority, both in PEM.
#[derive(Debug)]
pub(super) struct CertificateAuthority {
    cluster: String,
    pub(super) cert_pem: String,
    pub(super) key_pem: String,
}

/// A node's certificate and private key, both in PEM.
#[derive(Debug)]
pub(super) struct NodeCertificate {
    pub(super) cert_pem: String,
    pub(super) key_pem: String,
}

/// Returns the name in a node's certificate. The name contains no address, because a node's address may change.
pub(super) fn certificate_name(cluster: &str, node: u64) -> String {
    format!("node-{node}.{cluster}.dunlin")
}

/// Splits the name in a certificate into the cluster's id and the node's number; `None` if the name has another form.
pub(super) fn parse_certificate_name(name: &str) -> Option<(&str, u64)> {
    let (node, cluster) = name.strip_suffix(".dunlin")?.split_once('.')?;
    Some((cluster, node.strip_prefix("node-")?.parse().ok()?))
}

impl CertificateAuthority {
    /// Creates a new authority for a cluster.
    pub(super) fn generate(cluster: &str) -> Result<CertificateAuthority, ClusterError> {
        let key = KeyPair::generate()?;
        let cert_pem = params(cluster)?.self_signed(&key)?.pem();
        Ok(CertificateAuthority { cluster: cluster.to_owned(), cert_pem, key_pem: key.serialize_pem() })
    }

    /// Creates the value from the stored certificate and key of an existing authority.
    pub(super) fn from_pem(cluster: &str, cert_pem: String, key_pem: String) -> CertificateAuthority {
        CertificateAuthority { cluster: cluster.to_owned(), cert_pem, key_pem }
    }

    /// Issues a certificate for a node. The certificate also names `host`, at which other nodes reach the node.
    pub(super) fn issue(&self, node: u64, host: &str) -> Result<NodeCertificate, ClusterError> {
        let issuer = Issuer::new(params(&self.cluster)?, KeyPair::from_pem(&self.key_pem)?);
        let name = certificate_name(&self.cluster, node);
        let mut params = CertificateParams::new(vec![name.clone(), host.to_owned()])?;
        set_validity(&mut params);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &issuer)?;
        Ok(NodeCertificate { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }

    /// Returns the fingerprint of the authority's certificate. A joining node recognizes the cluster by this
    /// fingerprint.
    pub(super) fn fingerprint(&self) -> Result<[u8; 32], ClusterError> {
        let cert = CertificateDer::from_pem_slice(self.cert_pem.as_bytes());
        Ok(fingerprint(&cert.map_err(|error| ClusterError::Files(format!("ca.pem: {error}")))?))
    }
}

pub(super) fn fingerprint(cert: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(cert).into()
}

fn set_validity(params: &mut CertificateParams) {
    (params.not_before, params.not_after) = (date_time_ymd(YEARS.0, 1, 1), date_time_ymd(YEARS.1, 1, 1));
}

fn params(cluster: &str) -> Result<CertificateParams, ClusterError> {
    let mut params = CertificateParams::new(Vec::new())?;
    set_validity(&mut params);
    params.distinguished_name.push(DnType::CommonName, format!("Dunlin cluster {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_name_identifies_node_and_cluster() {
        assert_eq!(parse_certificate_name(&certificate_name("c0ffee", 12)), Some(("c0ffee", 12)));
        for other in ["node-x.c0ffee.dunlin", "node-1.dunlin", "node-1.c0ffee", "localhost", ""] {
            assert_eq!(parse_certificate_name(other), None, "{other}");
        }
    }

    #[test]
    fn reloaded_authority_issues_trusted_certificates() {
        let generated = CertificateAuthority::generate("c0ffee").unwrap();
        let read =
            CertificateAuthority::from_pem("c0ffee", generated.cert_pem.clone(), generated.key_pem.clone());
        assert_eq!(generated.fingerprint().unwrap(), read.fingerprint().unwrap());
        let issued = read.issue(3, "127.0.0.1").unwrap();
        let roots = dunlin_client::tls::authorities(generated.cert_pem.as_bytes()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            roots.into(),
            dunlin_client::tls::provider(),
        )
        .build()
        .unwrap();
        let cert = CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).unwrap();
        verifier.verify_client_cert(&cert, &[], rustls::pki_types::UnixTime::now()).unwrap();
    }
}
