//! What waits to be sent.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dunlin::Refused;
use dunlin::topic::{Budget, BudgetSpent};
use dunlin::wire::{ErrorCode, FromNode, RUN_HEAD_BYTES};

use super::charge::Charge;
use super::plan::RUN_BYTES_MAX;

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
}

/// Part of a message that was begun.
#[derive(Debug)]
pub(super) enum Rest {
    Copied(Vec<u8>),
    /// More than a run of the usual size.
    Charged {
        bytes: Vec<u8>,
        _charge: Charge,
    },
    Shared(Bytes),
}

impl Rest {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Rest::Copied(bytes) | Rest::Charged { bytes, .. } => bytes,
            Rest::Shared(bytes) => bytes,
        }
    }

    /// Charged to the budget when it is larger than what every session may have.
    pub(super) fn copy(bytes: &[u8], budget: &Arc<Budget>) -> Result<Rest, BudgetSpent> {
        if bytes.len() <= RUN_BYTES_MAX + RUN_HEAD_BYTES {
            return Ok(Rest::Copied(bytes.to_vec()));
        }
        let charge = Charge::of(budget, bytes.len())?;
        Ok(Rest::Charged { bytes: bytes.to_vec(), _charge: charge })
    }

    fn skip(&mut self, bytes: usize) {
        match self {
            Rest::Copied(all) | Rest::Charged { bytes: all, .. } => drop(all.drain(..bytes)),
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
