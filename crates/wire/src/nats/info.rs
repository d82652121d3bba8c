//! The INFO operation of the server.

use serde::Serialize;

/// The content of NATS operation `INFO`: the server's name, version and limits.
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
    /// Messages may have headers.
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
    /// The client must authenticate.
    #[serde(skip_serializing_if = "is_not")]
    pub auth_required: bool,
    /// The nonce that a client with an nkey signs; empty if no user has one.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub nonce: &'a str,
    /// The addresses of all nodes of the cluster, this one included.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub connect_urls: &'a [String],
    /// The node is stopping: clients should connect elsewhere.
    #[serde(skip_serializing_if = "is_not")]
    pub ldm: bool,
    /// TLS is required from here on.
    #[serde(skip_serializing_if = "is_not")]
    pub tls_required: bool,
    /// TLS is available.
    #[serde(skip_serializing_if = "is_not")]
    pub tls_available: bool,
    /// The client must show a certificate.
    #[serde(skip_serializing_if = "is_not")]
    pub tls_verify: bool,
}

fn is_not(said: &bool) -> bool {
    !said
}

impl Info<'_> {
    /// Appends the INFO line.
    pub fn say(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"INFO ");
        // The content is numbers and text, which JSON can always hold.
        let written = serde_json::to_writer(&mut *out, self);
        debug_assert!(written.is_ok());
        out.extend_from_slice(b"\r\n");
    }
}
