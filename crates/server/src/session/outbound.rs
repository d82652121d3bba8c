//! Holds the output that a session still has to send, and charges it to the memory budget.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dunlin::topic::{MemoryBudget, MemoryBudgetError, MemoryCharge};

/// A session may hold this many unsent bytes without a memory charge. The number suffices for the rest of a batch of
/// the usual size.
pub(crate) const UNCHARGED_BYTES_MAX: usize = (16 << 10) + 64;

/// The unsent output of a session. Records that are still in logs are not part of it.
#[derive(Debug, Default)]
pub(crate) struct OutboundBuffer {
    /// The unsent rest of a message whose beginning was already sent. It is sent before anything else.
    pub(crate) partial: VecDeque<UnsentPart>,
    /// Complete messages, one after another. The first `control_sent` bytes of them were already sent.
    pub(crate) control: Vec<u8>,
    pub(crate) control_sent: usize,
    /// The charges for those messages in `control` that are large.
    control_charges: Vec<MemoryCharge>,
    /// Whether the socket's send buffer is full.
    pub(crate) full: bool,
}

#[derive(Debug)]
pub(crate) enum UnsentPart {
    Copied(Vec<u8>),
    /// A part of more than [`UNCHARGED_BYTES_MAX`] bytes, which is charged to the memory budget.
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

    /// Copies `bytes` into a part. If there are more than [`UNCHARGED_BYTES_MAX`] bytes, charges them to the memory
    /// budget.
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

    /// Keeps the charge for a message until all messages in [`control`](OutboundBuffer::control) are sent.
    pub(crate) fn hold_charge(&mut self, charge: Option<MemoryCharge>) {
        self.control_charges.extend(charge);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.partial.is_empty() && self.control.is_empty()
    }

    /// Removes up to `bytes` bytes from the front, because the socket has taken them. Returns how many of the `bytes`
    /// bytes were not part of this output; these bytes belong to records.
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
            // Frees the memory, because an idle session must not hold memory for output.
            self.control = Vec::new();
            self.control_charges = Vec::new();
            self.control_sent = 0;
        }
        bytes - control
    }
}
