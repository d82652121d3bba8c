//! What both sides say of themselves.

use dunlin::wire::nats::{Connect, Info};

use super::Session;

/// Clients look at the version to see what they may ask for: what this door offers came with this one at the latest.
const LIKE_VERSION: &str = "2.10.0";
const PROTOCOL: u32 = 1;

impl Session {
    pub(super) fn say_info(&mut self) {
        let node = &self.shared.node;
        let local = self.stream.local_address();
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
            max_payload: self.limits().payload_bytes_max,
            client_id: self.id,
        };
        info.say(&mut self.outbound.control);
    }

    pub(super) fn connect(&mut self, json: &[u8]) {
        let connect = match Connect::parse(json) {
            Ok(connect) => connect,
            Err(violation) => return self.fail(&violation.to_string()),
        };
        if let Err(denied) = admit(&connect) {
            return self.fail(denied);
        }
        if connect.no_responders && !connect.headers {
            return self.fail("no responders requires headers support");
        }
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

/// Whether the client may come in: who is let on to a door at all needs no credentials, so whatever it brings is as
/// good as none.
fn admit(_connect: &Connect) -> Result<(), &'static str> {
    Ok(())
}
