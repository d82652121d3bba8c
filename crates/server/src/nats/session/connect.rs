//! Handles the operations INFO and CONNECT, with which a NATS connection begins.

use dunlin::Refused;
use dunlin::wire::ErrorCode;
use dunlin::wire::nats::{self, Connect, Info};
use tokio::net::TcpStream;

use super::Session;
use super::reading::limits;
use crate::protocol::Protocol;
use crate::shared::SharedServer;
use crate::stream::Stream;

/// The nats-server version in INFO. Client libraries choose features by this version, and the node supports all
/// features that this version has for clients.
const NATS_SERVER_VERSION: &str = "2.10.0";
pub(super) const PROTOCOL: u32 = 1;
/// The cluster name in INFO, if the node is in a cluster.
const CLUSTER: &str = "dunlin";
/// nats-server's error text for a connection above the limit.
const CONNECTIONS_EXCEEDED: &str = "maximum connections exceeded";

impl Session {
    pub(super) fn write_info(&mut self) {
        let is_tls = matches!(self.stream, Stream::Tls(_));
        self.announced_addresses = self.member_addresses();
        let (addresses, out) = (&self.announced_addresses, &mut self.outbound.control);
        write_info(&self.shared, addresses, self.stream.socket(), self.id, is_tls, out);
    }

    /// Sends INFO again if the members' addresses have changed since the last INFO. Otherwise, a client that connected
    /// after a change of the cluster would receive the same INFO twice.
    pub(super) fn announce_members(&mut self) {
        if self.member_addresses() != self.announced_addresses {
            self.write_info_again();
        }
    }

    /// The addresses of the client's listener at all members of the cluster.
    fn member_addresses(&self) -> Vec<String> {
        let is_websocket = matches!(self.stream, Stream::Ws(_));
        self.shared.nats_addresses(if is_websocket { Protocol::Http } else { Protocol::Nats })
    }

    pub(super) fn connect(&mut self, json: &[u8]) {
        let connect = match Connect::parse(json) {
            Ok(connect) => connect,
            Err(violation) => return self.fail(&violation.to_string()),
        };
        if connect.no_responders && !connect.headers {
            return self.fail("no responders requires headers support");
        }
        self.session_trace.set_client_name(match connect.name.as_str() {
            "" => &connect.lang,
            name => name,
        });
        self.connect = connect;
        self.write_ok();
        // Until now, it was not known whether the client supports a second INFO.
        self.announce_members();
    }

    pub(super) fn name(&self) -> String {
        match self.connect.name.as_str() {
            "" if self.connect.lang.is_empty() => format!("nats {}", self.id),
            "" => format!("nats {} {}", self.connect.lang, self.id),
            name => name.to_owned(),
        }
    }
}

/// The INFO message that a client received before TLS began.
pub(crate) struct AnnouncedInfo {
    /// The number of the session.
    pub(crate) session: u64,
    /// The addresses of the cluster's members.
    pub(crate) addresses: Vec<String>,
}

/// Appends an INFO message with these addresses of the cluster's members. The message is sent before TLS, unless the
/// client begins with TLS.
pub(crate) fn write_info(
    shared: &SharedServer,
    addresses: &[String],
    socket: Option<&TcpStream>,
    session: u64,
    is_tls: bool,
    out: &mut Vec<u8>,
) {
    let node = &shared.node;
    let local = socket.and_then(|socket| socket.local_addr().ok());
    let client = socket.and_then(|socket| socket.peer_addr().ok());
    let host = local.map_or_else(String::new, |address| address.ip().to_string());
    let info = Info {
        server_id: &format!("DUNLIN{:016X}", node.id()),
        server_name: &node.config().name,
        version: NATS_SERVER_VERSION,
        dunlin: env!("CARGO_PKG_VERSION"),
        proto: PROTOCOL,
        host: &host,
        port: local.map_or(0, |address| address.port()),
        headers: true,
        max_payload: limits(shared).payload_bytes_max,
        client_id: session,
        client_ip: &client.map_or_else(String::new, |address| address.ip().to_string()),
        cluster: if shared.cluster.get().is_some() { CLUSTER } else { "" },
        nonce: &shared.access.as_ref().and_then(|access| access.nonce(session)).unwrap_or_default(),
        ldm: shared.is_stopping(),
        connect_urls: addresses,
        auth_required: shared.access.is_some(),
        tls_required: is_tls,
        tls_available: is_tls,
        tls_verify: is_tls
            && shared.tls.as_ref().is_some_and(|identity| identity.requires_client_certificates()),
    };
    info.encode(out);
}

/// The error for a client whose connection is refused.
pub(crate) fn refusal(refused: &Refused) -> Vec<u8> {
    let mut out = Vec::new();
    nats::put_error(&mut out, &error_text(refused));
    out
}

pub(super) fn error_text(refused: &Refused) -> String {
    match refused.code {
        ErrorCode::Limit => CONNECTIONS_EXCEEDED.to_owned(),
        // The text is the one that nats-server sends.
        ErrorCode::TlsRequired => "Secure Connection - TLS Required".to_owned(),
        _ => refused.as_wire().to_string(),
    }
}
