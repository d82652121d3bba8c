//! Writes the operation INFO, with which a server describes itself to a NATS client.

use serde::Serialize;

/// The content of the NATS operation `INFO`: the server's name, version and limits.
#[derive(Debug, Clone, Serialize)]
pub struct Info<'a> {
    /// The node's id.
    pub server_id: &'a str,
    /// The node's name.
    pub server_name: &'a str,
    /// The version of nats-server that clients may take the node for.
    pub version: &'a str,
    /// Dunlin's own version.
    pub dunlin: &'a str,
    /// The version of the NATS protocol.
    pub proto: u32,
    /// The host to which the client has connected.
    pub host: &'a str,
    /// The port to which the client has connected.
    pub port: u16,
    /// Whether messages may have headers.
    pub headers: bool,
    /// Maximum size of a payload together with its headers, bytes.
    pub max_payload: usize,
    /// The connection's number.
    pub client_id: u64,
    /// The client's address; empty for a Unix socket.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub client_ip: &'a str,
    /// The cluster's id; empty if the node belongs to no cluster.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub cluster: &'a str,
    /// Whether the client must authenticate.
    #[serde(skip_serializing_if = "is_false")]
    pub auth_required: bool,
    /// The nonce that a client with an nkey must sign; empty if no user has an nkey.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub nonce: &'a str,
    /// The addresses of all nodes of the cluster, this one included.
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
        // JSON can represent all numbers and texts, so this cannot fail.
        let written = serde_json::to_writer(&mut *out, self);
        debug_assert!(written.is_ok());
        out.extend_from_slice(b"\r\n");
    }
}
