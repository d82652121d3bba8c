//! What a server says of itself.

use serde::Serialize;

/// The content of `INFO`.
#[derive(Debug, Clone, Serialize)]
pub struct Info<'a> {
    /// The node.
    pub server_id: &'a str,
    /// The node's name.
    pub server_name: &'a str,
    /// The version of nats-server that clients may take this for.
    pub version: &'a str,
    /// Dunlin's own version.
    pub dunlin: &'a str,
    /// The protocol's version.
    pub proto: u32,
    /// Where the client has connected to.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// Messages may have headers.
    pub headers: bool,
    /// The largest payload, its headers included.
    pub max_payload: usize,
    /// The connection's number.
    pub client_id: u64,
    /// The address that the client comes from; empty where there is none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub client_ip: &'a str,
    /// The name of the cluster that the node takes part in; empty without one.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub cluster: &'a str,
    /// The client is to prove who it is.
    #[serde(skip_serializing_if = "is_not")]
    pub auth_required: bool,
    /// What a client signs whose user has an nkey; empty where no user has one.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub nonce: &'a str,
    /// Where else clients may connect to: the nodes of the cluster, this one among them.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub connect_urls: &'a [String],
    /// The node is about to end: clients connect elsewhere.
    #[serde(skip_serializing_if = "is_not")]
    pub ldm: bool,
    /// Nothing but TLS is taken from here on.
    #[serde(skip_serializing_if = "is_not")]
    pub tls_required: bool,
    /// TLS may begin here.
    #[serde(skip_serializing_if = "is_not")]
    pub tls_available: bool,
    /// The client is to show a certificate.
    #[serde(skip_serializing_if = "is_not")]
    pub tls_verify: bool,
}

fn is_not(said: &bool) -> bool {
    !said
}

impl Info<'_> {
    /// Appends the line.
    pub fn say(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"INFO ");
        // Numbers and text: there is nothing that JSON could not hold.
        let written = serde_json::to_writer(&mut *out, self);
        debug_assert!(written.is_ok());
        out.extend_from_slice(b"\r\n");
    }
}
