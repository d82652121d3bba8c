//! Errors of tasks.

use dunlin_raft::RaftGroupError;
use dunlin_tasks::{TaskDecodeError, TaskRefusal};

use crate::control::ControlError;

/// The reason why a command or query about tasks failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TasksError {
    /// The scheduler has refused the command; nothing changed.
    #[error("{0}")]
    Refused(#[from] TaskRefusal),
    /// The bytes are not a valid command, query or response.
    #[error("{0}")]
    Malformed(#[from] TaskDecodeError),
    /// The cluster did not agree on the command, or the command's outcome is unknown.
    #[error("{0}")]
    Agreeing(#[from] ControlError),
}

impl TasksError {
    pub(crate) fn unknown() -> TasksError {
        ControlError::Unknown.into()
    }
}

impl From<RaftGroupError> for TasksError {
    fn from(error: RaftGroupError) -> TasksError {
        ControlError::from(error).into()
    }
}
