//! The reasons why a client has no connection.

use std::time::Duration;

use dunlin_wire::{ErrorCode, RetryAdvice};

use crate::refusal::RefusedError;

/// Why the client has no connection to the node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DisconnectReason {
    /// The client has not tried to connect yet.
    #[error("not connected yet")]
    New,
    /// The node cannot be reached, or the connection ended.
    #[error("{0}")]
    Io(String),
    /// The node is still starting; the client tries again.
    #[error("{0}")]
    Opening(RefusedError),
    /// The node refuses the client.
    #[error("refused by the node: {0}")]
    Refused(RefusedError),
    /// The node has accepted the client before, but refuses it for now. The client tries again.
    #[error("the node refused the connection, and the client tries again: {0}")]
    Later(RefusedError),
    /// A check of the caller, set with [`interruptible`](crate::interruptible), has interrupted the wait.
    #[error("interrupted")]
    Interrupted,
}

impl DisconnectReason {
    /// Converts a refusal by the node to a reason. `was_up` says whether the client was connected before. After a
    /// temporary refusal, the client's handles continue to work.
    pub(crate) fn refused(refused: RefusedError, was_up: bool) -> DisconnectReason {
        match refused.code {
            ErrorCode::Opening => DisconnectReason::Opening(refused),
            _ if was_up && refused.retry() != RetryAdvice::No => DisconnectReason::Later(refused),
            _ => DisconnectReason::Refused(refused),
        }
    }

    /// How long the node asked the client to wait before the next attempt; `None` if the node did not ask for this.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            DisconnectReason::Later(RefusedError {
                code: ErrorCode::RateLimit,
                numbers: [wait_ms, ..],
                ..
            }) => Some(Duration::from_millis(*wait_ms)),
            _ => None,
        }
    }
}
