//! Why nothing came of what was asked about tasks.

use dunlin_raft::GroupError;
use dunlin_tasks::{DecodeError, Refusal};

use crate::control::ControlError;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TasksError {
    /// The scheduler refused the command: nothing was changed.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// Bytes that are no command, question or answer.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// The nodes could not agree, or what they agreed on is not known.
    #[error("{0}")]
    Agreeing(#[from] ControlError),
}

impl TasksError {
    /// It may have been done, or may still be.
    pub(crate) fn unknown() -> TasksError {
        ControlError::Unknown.into()
    }
}

impl From<GroupError> for TasksError {
    fn from(error: GroupError) -> TasksError {
        ControlError::from(error).into()
    }
}
