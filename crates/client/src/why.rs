//! Why there is no connection, and what that means for those who wait.

use std::time::Duration;

use dunlin_wire::{ErrorCode, Retry};

use crate::refusal::Refused;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Nobody has tried yet.
    #[error("not connected yet")]
    New,
    /// The node cannot be reached, or the connection ended.
    #[error("{0}")]
    Io(String),
    /// The node lets nobody in yet, and will.
    #[error("{0}")]
    Opening(Refused),
    /// The node does not let this client in.
    #[error("refused by the node: {0}")]
    Refused(Refused),
    /// The node does not let this client, which was connected before, in again yet. The client tries again by itself.
    #[error("refused by the node for now: {0}")]
    Later(Refused),
    /// The caller broke off its wait ([`interruptible`](crate::interruptible)).
    #[error("interrupted")]
    Interrupted,
}

impl Why {
    /// A refusal that the node may take back ends nothing that this client began.
    pub(crate) fn refused(refused: Refused, was_up: bool) -> Why {
        match refused.code {
            ErrorCode::Opening => Why::Opening(refused),
            _ if was_up && refused.retry() != Retry::No => Why::Later(refused),
            _ => Why::Refused(refused),
        }
    }

    /// How long the node said to wait.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            Why::Later(Refused { code: ErrorCode::RateLimit, numbers: [wait_ms, ..], .. }) => {
                Some(Duration::from_millis(*wait_ms))
            }
            _ => None,
        }
    }
}
