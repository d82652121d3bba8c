//! Errors of tasks.

use dunlin_raft::GroupError;
use dunlin_tasks::{DecodeError, TaskRefusal};

use crate::control::ControlError;

/// Why a command or query of tasks failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TasksError {
    /// The scheduler refused the command; nothing changed.
    #[error("{0}")]
    Refused(#[from] TaskRefusal),
    /// The bytes are no valid command, query or response.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// The cluster could not agree, or the outcome is unknown.
    #[error("{0}")]
    Agreeing(#[from] ControlError),
}

impl TasksError {
    /// The outcome is unknown.
    pub(crate) fn unknown() -> TasksError {
        ControlError::Unknown.into()
    }
}

impl From<GroupError> for TasksError {
    fn from(error: GroupError) -> TasksError {
        ControlError::from(error).into()
    }
}
