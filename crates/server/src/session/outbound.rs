//! What waits to be sent.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dunlin::topic::{Budget, BudgetSpent, Charge};

/// What every session may keep without being charged: the rest of one run of the usual size.
pub(crate) const KEPT_BYTES_MAX: usize = (16 << 10) + 64;

/// What waits to be sent, besides the records that lie in logs.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// What the socket did not take of a run: goes before all else.
    pub(crate) rest: VecDeque<Rest>,
    /// Whole messages, but for the first `control_sent` bytes.
    pub(crate) control: Vec<u8>,
    pub(crate) control_sent: usize,
    /// The socket takes nothing now.
    pub(crate) full: bool,
}

/// Part of a message that was begun.
#[derive(Debug)]
pub(crate) enum Rest {
    Copied(Vec<u8>),
    /// More than a run of the usual size.
    Charged {
        bytes: Vec<u8>,
        _charge: Charge,
    },
    Shared(Bytes),
}

impl Rest {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Rest::Copied(bytes) | Rest::Charged { bytes, .. } => bytes,
            Rest::Shared(bytes) => bytes,
        }
    }

    /// Charged to the budget when it is larger than what every session may have.
    pub(crate) fn copy(bytes: &[u8], budget: &Arc<Budget>) -> Result<Rest, BudgetSpent> {
        if bytes.len() <= KEPT_BYTES_MAX {
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
    pub(crate) fn control(&self) -> &[u8] {
        &self.control[self.control_sent..]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.control.is_empty()
    }

    /// The socket took so many of the rest's and the control messages' bytes; gives what it took beyond.
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
            // A session that has nothing to say keeps no memory for it.
            self.control = Vec::new();
            self.control_sent = 0;
        }
        bytes - control
    }
}
