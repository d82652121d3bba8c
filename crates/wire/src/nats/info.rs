//! The operation INFO, with which the server describes itself to a NATS client.

use serde::Serialize;

/// The content of the NATS operation `INFO`: the server's name, version and limits.
#[derive(Debug, Clone, Serialize)]
pub struct Info<'a> {
    /// The node's id.
    pub server_id: &'a str,
    /// The node's name.
    pub server_name: &'a str,
    /// The version of nats-server whose features clients may expect.
    pub version: &'a str,
    /// Dunlin's own version.
    pub dunlin: &'a str,
    /// The protocol's version.
    pub proto: u32,
    /// The host that the client connected to.
    pub host: &'a str,
    /// The port that the client connected to.
    pub port: u16,
    /// Whether messages may have headers.
    pub headers: bool,
    /// Largest payload with its headers, bytes.
    pub max_payload: usize,
    /// The connection's number.
    pub client_id: u64,
    /// The client's address; empty over a Unix socket.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub client_ip: &'a str,
    /// The cluster's id; empty without a cluster.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub cluster: &'a str,
    /// Whether the client must authenticate.
    #[serde(skip_serializing_if = "is_false")]
    pub auth_required: bool,
    /// The nonce that a client with an nkey must sign; empty if no user has an nkey.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub nonce: &'a str,
    /// The addresses of all nodes of the cluster, including this one.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub connect_urls: &'a [String],
    /// Whether the node is stopping. Clients should then connect to another node.
    #[serde(skip_serializing_if = "is_false")]
    pub ldm: bool,
    /// Whether the client must start TLS after this message.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_required: bool,
    /// Whether the client may start TLS after this message.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_available: bool,
    /// Whether the client must have a certificate.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_verify: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Info<'_> {
    /// Appends the INFO line.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"INFO ");
        // The content consists of numbers and text, which JSON can always represent.
        let written = serde_json::to_writer(&mut *out, self);
        debug_assert!(written.is_ok());
        out.extend_from_slice(b"\r\n");
    }
}
