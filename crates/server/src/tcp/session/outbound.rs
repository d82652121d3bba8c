//! Adds messages to a session's output.

use dunlin::Refused;
use dunlin::wire::{ErrorCode, FromNode};

pub(super) use crate::session::outbound::OutboundBuffer;

impl OutboundBuffer {
    pub(super) fn push(&mut self, message: FromNode<'_>) {
        message.encode(&mut self.control);
    }
}

/// Creates the refusal for a client that has violated the protocol.
pub(crate) fn protocol(text: impl Into<String>) -> Refused {
    Refused::new(ErrorCode::Protocol, text)
}
