//! What waits to be sent.

use std::collections::VecDeque;

use bytes::Bytes;
use dunlin::Refused;
use dunlin::wire::{ErrorCode, FromNode};

/// What waits to be sent, besides the records that lie in logs.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// What the socket did not take of a run: goes before all else.
    pub(super) rest: VecDeque<Rest>,
    /// Whole messages, but for the first `control_sent` bytes.
    pub(super) control: Vec<u8>,
    pub(super) control_sent: usize,
    /// The socket takes nothing now.
    pub(super) full: bool,
    /// Something was sent since the last heartbeat.
    pub(super) sent_any: bool,
}

/// Part of a message that was begun.
#[derive(Debug)]
pub(super) enum Rest {
    Copied(Vec<u8>),
    Shared(Bytes),
}

impl Rest {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Rest::Copied(bytes) => bytes,
            Rest::Shared(bytes) => bytes,
        }
    }

    fn skip(&mut self, bytes: usize) {
        match self {
            Rest::Copied(all) => drop(all.drain(..bytes)),
            Rest::Shared(all) => drop(all.split_to(bytes)),
        }
    }
}

impl Outbound {
    pub(super) fn say(&mut self, message: FromNode<'_>) {
        message.encode(&mut self.control);
    }

    pub(super) fn control(&self) -> &[u8] {
        &self.control[self.control_sent..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.control.is_empty()
    }

    /// The socket took so many of the rest's and the control messages' bytes; gives what it took beyond.
    pub(super) fn sent(&mut self, mut bytes: usize) -> usize {
        self.sent_any |= bytes > 0;
        while let Some(first) = self.rest.front_mut() {
            let len = first.bytes().len();
            if bytes < len {
                first.skip(bytes);
                return 0;
            }
            bytes -= len;
            self.rest.pop_front();
        }
        let control = bytes.min(self.control().len());
        self.control_sent += control;
        if self.control_sent == self.control.len() {
            // A session that has nothing to say keeps no memory for it.
            self.control = Vec::new();
            self.control_sent = 0;
        }
        bytes - control
    }
}

/// What a client is told that broke the protocol.
pub(super) fn protocol(text: impl Into<String>) -> Refused {
    Refused::new(ErrorCode::Protocol, text)
}
