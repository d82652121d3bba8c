//! Encrypts the connections between nodes with TLS, in which both sides show a certificate.
//!
//! A node that joins has no certificate yet, and may only send a join request. It verifies the cluster by the
//! fingerprint in its join token.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use dunlin_client::tls::{self, TlsCodec, authorities, certificates, private_key, provider};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};
use tokio::net::TcpStream;

use super::authority::{
    CertificateAuthority, NodeCertificate, certificate_name, fingerprint, parse_certificate_name,
};
use super::error::ClusterError;
use super::token::JoinToken;
use crate::stream::{Stream, TlsStream};
use crate::tls::poll_handshake;

/// The name of the protocol between nodes in ALPN, by which TLS clients select a protocol.
pub(super) const PROTOCOL: &[u8] = b"dunlin-cluster";

/// The TLS configurations with which a node accepts connections from other nodes and opens connections to them.
#[derive(Debug, Clone)]
pub(super) struct ClusterTls {
    cluster: String,
    server_config: Arc<ServerConfig>,
    client_config: Arc<ClientConfig>,
}

fn files(file: &'static str) -> impl Fn(String) -> ClusterError {
    move |why| ClusterError::Files(format!("{file}: {why}"))
}

impl ClusterTls {
    pub(super) fn new(
        cluster: &str,
        authority: &CertificateAuthority,
        certificate: &NodeCertificate,
    ) -> Result<ClusterTls, ClusterError> {
        let roots = Arc::new(authorities(authority.cert_pem.as_bytes()).map_err(files("ca.pem"))?);
        let mut chain = certificates(certificate.cert_pem.as_bytes()).map_err(files("node.pem"))?;
        let key = || private_key(certificate.key_pem.as_bytes()).map_err(files("node-key.pem"));
        let mut client_config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key()?)?;
        client_config.alpn_protocols = vec![PROTOCOL.to_vec()];
        client_config.time_provider = tls::clock();
        // The chain also contains the authority's certificate, because a joining node compares that certificate's
        // fingerprint with the one in the join token.
        chain.extend(certificates(authority.cert_pem.as_bytes()).map_err(files("ca.pem"))?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .allow_unauthenticated()
            .build()
            .map_err(|error| ClusterError::Files(format!("ca.pem: {error}")))?;
        let mut server_config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key()?)?;
        server_config.alpn_protocols = vec![PROTOCOL.to_vec(), tls::PROTOCOL.to_vec()];
        server_config.time_provider = tls::clock();
        let (server_config, client_config) = (Arc::new(server_config), Arc::new(client_config));
        Ok(ClusterTls { cluster: cluster.to_owned(), server_config, client_config })
    }

    /// Connects to the node with the number `node`. Verifies by the peer's certificate that the peer is that node.
    pub(super) async fn connect(&self, node: u64, address: &str) -> io::Result<Stream> {
        let name = certificate_name(&self.cluster, node);
        let tls_stream = secure(address, Arc::clone(&self.client_config), &name).await;
        tls_stream.map_err(|error| self.explain(node, error))
    }

    /// Does the TLS handshake of an accepted connection.
    pub(super) async fn accept(&self, socket: TcpStream) -> io::Result<AcceptedNode> {
        let codec = TlsCodec::server(Arc::clone(&self.server_config)).map_err(io::Error::other)?;
        let mut tls_stream = Box::new(TlsStream::new(socket, codec));
        poll_fn(|cx| poll_handshake(&mut tls_stream, cx)).await?;
        let is_for_listener = tls_stream.protocol() == Some(tls::PROTOCOL);
        let certificate = tls_stream.client_certificate();
        let names = certificate.as_ref().map_or(&[][..], |certificate| &certificate.names);
        let node = names.iter().find_map(|name| parse_certificate_name(name));
        let node = node.filter(|(cluster, _)| *cluster == self.cluster).map(|(_, node)| node);
        Ok(AcceptedNode { node, is_for_listener, stream: Stream::Tls(tls_stream) })
    }

    fn explain(&self, node: u64, error: io::Error) -> io::Error {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        let why = match tls {
            Some(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => format!("another node of the cluster uses this address, not node {node}"),
            Some(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => "the node at this address belongs to another cluster".to_owned(),
            Some(Error::AlertReceived(alert)) => format!(
                "node {node} refuses this node's certificate \
                 ({alert:?})"
            ),
            Some(error) => error.to_string(),
            None => return error,
        };
        io::Error::new(error.kind(), why)
    }
}

/// An accepted TLS connection, with the node that the peer's certificate names and the protocol that the peer selected.
pub(super) struct AcceptedNode {
    /// The node that the peer's certificate names; `None` if the peer has no certificate of this cluster.
    pub(super) node: Option<u64>,
    /// Whether the peer selected Dunlin's own protocol by ALPN, instead of the protocol between nodes.
    pub(super) is_for_listener: bool,
    pub(super) stream: Stream,
}

/// Connects to a node of the cluster to which the join token belongs. The inner error is permanent, so that another
/// attempt cannot succeed.
pub(super) async fn connect_by_token(
    token: &JoinToken,
    address: &str,
) -> io::Result<Result<Stream, &'static str>> {
    let verifier = Arc::new(ByFingerprint { fingerprint: token.fingerprint, provider: provider() });
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.time_provider = tls::clock();
    let error = match secure(address, Arc::new(config), "any.dunlin").await {
        Ok(stream) => return Ok(Ok(stream)),
        Err(error) => error,
    };
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(_)) => {
            Ok(Err("the node at this address belongs to another cluster than the token"))
        }
        Some(Error::InvalidMessage(_) | Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            Ok(Err("the port is not for nodes of a cluster: give the address of --cluster-listen"))
        }
        _ => Err(error),
    }
}

async fn secure(address: &str, config: Arc<ClientConfig>, name: &str) -> io::Result<Stream> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let codec = TlsCodec::client(config, name).map_err(io::Error::other)?;
    let mut tls_stream = Box::new(TlsStream::new(socket, codec));
    poll_fn(|cx| poll_handshake(&mut tls_stream, cx)).await?;
    Ok(Stream::Tls(tls_stream))
}

/// Verifies a server's certificate only by the fingerprint of the authority that issued it, and ignores the names in
/// the certificate.
#[derive(Debug)]
struct ByFingerprint {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = chain.iter().find(|cert| fingerprint(cert) == self.fingerprint);
        let authority = authority.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let cert = ParsedCertificate::try_from(cert)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(&cert, &roots, &[], now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
