//! What both sides say of themselves.

use std::net::SocketAddr;

use dunlin::Refused;
use dunlin::wire::ErrorCode;
use dunlin::wire::nats::{self, Connect, Info};

use super::Session;
use super::reading::limits;
use crate::door::Door;
use crate::shared::Shared;
use crate::stream::Stream;

/// Clients look at the version to see what they may ask for: what this door offers came with this one at the latest.
const LIKE_VERSION: &str = "2.10.0";
const PROTOCOL: u32 = 1;
/// There is no place for the client.
const FULL: &str = "maximum connections exceeded";

impl Session {
    pub(super) fn say_info(&mut self) {
        let is_tls = matches!(self.stream, Stream::Tls(_));
        let local = self.stream.local_address();
        say_info(&self.shared, local, self.id, is_tls, &mut self.outbound.control);
    }

    pub(super) fn connect(&mut self, json: &[u8]) {
        let connect = match Connect::parse(json) {
            Ok(connect) => connect,
            Err(violation) => return self.fail(&violation.to_string()),
        };
        if connect.no_responders && !connect.headers {
            return self.fail("no responders requires headers support");
        }
        self.visit.is_called(match connect.name.as_str() {
            "" => &connect.lang,
            name => name,
        });
        self.connect = connect;
        self.done();
    }

    /// What operators see of this connection.
    pub(super) fn name(&self) -> String {
        match self.connect.name.as_str() {
            "" if self.connect.lang.is_empty() => format!("nats {}", self.id),
            "" => format!("nats {} {}", self.connect.lang, self.id),
            name => name.to_owned(),
        }
    }
}

/// Appends what a client hears first: where clients come by TLS, before it, unless they begin with it.
pub(crate) fn say_info(
    shared: &Shared,
    local: Option<SocketAddr>,
    session: u64,
    is_tls: bool,
    out: &mut Vec<u8>,
) {
    let node = &shared.node;
    let host = local.map_or_else(String::new, |address| address.ip().to_string());
    let info = Info {
        server_id: &format!("DUNLIN{:016X}", node.id()),
        server_name: &node.config().name,
        version: LIKE_VERSION,
        dunlin: env!("CARGO_PKG_VERSION"),
        proto: PROTOCOL,
        host: &host,
        port: local.map_or(0, |address| address.port()),
        headers: true,
        max_payload: limits(shared).payload_bytes_max,
        client_id: session,
        connect_urls: &shared.cluster.get().map_or_else(Vec::new, |seat| seat.addresses_of(Door::Nats)),
        auth_required: shared.access.is_some(),
        tls_required: is_tls,
        tls_available: is_tls,
        tls_verify: is_tls && shared.tls.as_ref().is_some_and(|identity| identity.asks_for_certificates()),
    };
    info.say(out);
}

/// What a client is told that does not come so far as to have a session.
pub(crate) fn refusal(refused: &Refused) -> Vec<u8> {
    let mut out = Vec::new();
    nats::refuse(&mut out, &in_words(refused));
    out
}

/// The same, not yet as it is sent.
pub(super) fn in_words(refused: &Refused) -> String {
    match refused.code {
        ErrorCode::Limit => FULL.to_owned(),
        // As nats-server words it.
        ErrorCode::TlsRequired => "Secure Connection - TLS Required".to_owned(),
        code => format!("{code} {}", refused.text),
    }
}
