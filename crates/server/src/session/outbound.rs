//! Output that a session has not sent yet.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dunlin::topic::{Budget, BudgetSpent, Charge};

/// Maximum number of bytes that each session may hold without a charge: the rest of one batch of the usual size.
pub(crate) const KEPT_BYTES_MAX: usize = (16 << 10) + 64;

/// Output besides the records that are in logs.
#[derive(Debug, Default)]
pub(crate) struct OutboundBuffer {
    /// Unsent parts of a message, which are sent first.
    pub(crate) rest: VecDeque<UnsentPart>,
    /// Whole messages, without the first `control_sent` bytes.
    pub(crate) control: Vec<u8>,
    pub(crate) control_sent: usize,
    /// Whether the socket's buffer is full.
    pub(crate) full: bool,
}

/// Unsent part of a message.
#[derive(Debug)]
pub(crate) enum UnsentPart {
    Copied(Vec<u8>),
    /// A part of more than [`KEPT_BYTES_MAX`].
    Charged {
        bytes: Vec<u8>,
        _charge: Charge,
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

    /// Copies the bytes. More than [`KEPT_BYTES_MAX`] are charged to the budget.
    pub(crate) fn copy(bytes: &[u8], budget: &Arc<Budget>) -> Result<UnsentPart, BudgetSpent> {
        if bytes.len() <= KEPT_BYTES_MAX {
            return Ok(UnsentPart::Copied(bytes.to_vec()));
        }
        let charge = Charge::of(budget, bytes.len())?;
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

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.control.is_empty()
    }

    /// Removes bytes that the socket took, and returns how many of them belong to records.
    pub(crate) fn sent(&mut self, mut bytes: usize) -> usize {
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
            // An idle session holds no memory for output.
            self.control = Vec::new();
            self.control_sent = 0;
        }
        bytes - control
    }
}
