//! The output that a session still has to send.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dunlin::topic::{MemoryBudget, MemoryBudgetError, MemoryCharge};

/// Maximum number of unsent bytes that a session may hold without a memory charge: the rest of one batch of the usual
/// size.
pub(crate) const UNCHARGED_BYTES_MAX: usize = (16 << 10) + 64;

/// A session's unsent output, except for records that are still in logs.
#[derive(Debug, Default)]
pub(crate) struct OutboundBuffer {
    /// Unsent parts of a message of which a part was sent. They are sent before anything else.
    pub(crate) partial: VecDeque<UnsentPart>,
    /// Complete messages. The first `control_sent` bytes were already sent.
    pub(crate) control: Vec<u8>,
    pub(crate) control_sent: usize,
    /// The charges for large messages in `control`.
    control_charges: Vec<MemoryCharge>,
    /// Whether the socket's send buffer is full.
    pub(crate) full: bool,
}

#[derive(Debug)]
pub(crate) enum UnsentPart {
    Copied(Vec<u8>),
    /// A part of more than [`UNCHARGED_BYTES_MAX`] bytes, charged to the memory budget.
    Charged {
        bytes: Vec<u8>,
        _charge: MemoryCharge,
    },
    Shared(Bytes),
}

impl UnsentPart {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            UnsentPart::Copied(bytes) | UnsentPart::Charged { bytes, .. } => bytes,
            UnsentPart::Shared(bytes) => bytes,
        }
    }

    /// Copies the bytes. More than [`UNCHARGED_BYTES_MAX`] bytes are charged to the memory budget.
    pub(crate) fn copy(bytes: &[u8], budget: &Arc<MemoryBudget>) -> Result<UnsentPart, MemoryBudgetError> {
        if bytes.len() <= UNCHARGED_BYTES_MAX {
            return Ok(UnsentPart::Copied(bytes.to_vec()));
        }
        let charge = MemoryCharge::of(budget, bytes.len())?;
        Ok(UnsentPart::Charged { bytes: bytes.to_vec(), _charge: charge })
    }

    fn skip(&mut self, bytes: usize) {
        match self {
            UnsentPart::Copied(all) | UnsentPart::Charged { bytes: all, .. } => drop(all.drain(..bytes)),
            UnsentPart::Shared(all) => drop(all.split_to(bytes)),
        }
    }
}

impl OutboundBuffer {
    pub(crate) fn control(&self) -> &[u8] {
        &self.control[self.control_sent..]
    }

    /// Holds the charge for a message in [`control`](OutboundBuffer::control) until all these messages are sent.
    pub(crate) fn hold_charge(&mut self, charge: Option<MemoryCharge>) {
        self.control_charges.extend(charge);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.partial.is_empty() && self.control.is_empty()
    }

    /// Removes the bytes that the socket took. Returns how many of them belong to records.
    pub(crate) fn remove_sent(&mut self, mut bytes: usize) -> usize {
        while let Some(first) = self.partial.front_mut() {
            let len = first.bytes().len();
            if bytes < len {
                first.skip(bytes);
                return 0;
            }
            bytes -= len;
            self.partial.pop_front();
        }
        let control = bytes.min(self.control().len());
        self.control_sent += control;
        if self.control_sent == self.control.len() {
            // Frees the memory, because an idle session must hold none for output.
            self.control = Vec::new();
            self.control_charges = Vec::new();
            self.control_sent = 0;
        }
        bytes - control
    }
}
