//! Does the handshake of a session: receives HELLO and sends WELCOME.

use dunlin::Refused;
use dunlin::wire::{
    DecodeOutcome, ErrorCode, FromNode, NO_CLUSTER, OptionalText, PREAMBLE_BYTES, Preamble, Welcome,
};

use super::outbound::protocol;
use super::reading::HandleOutcome;
use super::{Phase, Session};

impl Session {
    pub(super) fn take_preamble(&mut self, bytes: &[u8]) -> DecodeOutcome<HandleOutcome> {
        let offered = match Preamble::parse(bytes) {
            Ok(Some(offered)) => offered,
            Ok(None) => return DecodeOutcome::Need(PREAMBLE_BYTES),
            Err(error) => {
                self.send_preamble(Preamble::OURS);
                self.fail(&protocol(error.to_string()));
                return DecodeOutcome::Need(PREAMBLE_BYTES);
            }
        };
        match Preamble::OURS.negotiate(offered) {
            Ok(version) => {
                self.send_preamble(Preamble::chosen(version));
                self.decoder.set_version(version);
                self.phase = Phase::Hello;
            }
            Err(refusal) => {
                self.send_preamble(Preamble::OURS);
                self.fail(&Refused { numbers: refusal.numbers, ..Refused::new(refusal.code, refusal.text) });
            }
        }
        DecodeOutcome::Message(HandleOutcome::Handled, PREAMBLE_BYTES)
    }

    pub(super) fn send_preamble(&mut self, preamble: Preamble) {
        self.outbound.control.extend_from_slice(&preamble.to_bytes());
    }

    pub(super) fn send_welcome(&mut self) {
        let (node, limits) = (&self.shared.node, &self.shared.limits);
        self.outbound.push(FromNode::Welcome(Welcome {
            node: node.id(),
            session: self.id,
            node_name: &node.config().name,
            inbox_prefix: &self.inbox.prefix(),
            heartbeat_ms: limits.heartbeat_ms,
            run_bytes_max: limits.run_bytes_max,
            control_bytes_max: limits.control_bytes_max,
            subscriptions_max: limits.subscriptions_max,
            publishers_max: limits.publishers_max,
            in_flight_bytes_max: limits.in_flight_bytes_max,
            cluster: OptionalText(self.shared.cluster_id().unwrap_or(NO_CLUSTER)),
        }));
        self.phase = Phase::Open;
        self.timer.set_ms(limits.heartbeat_ms);
        if self.must_close() {
            self.start_goodbye();
        }
    }

    pub(super) fn on_handshake_timeout(&mut self) {
        if let Phase::Preamble = self.phase {
            self.send_preamble(Preamble::OURS);
        }
        let waited_ms = u64::from(self.shared.limits.handshake_ms_max);
        self.fail(&Refused { numbers: [waited_ms, 0, 0], ..Refused::new(ErrorCode::Handshake, "") });
    }
}
