//! Errors of requests about tasks.

use dunlin_tasks::{TaskDecodeError, no_tenant};
use dunlin_wire::ErrorCode;

use crate::interrupt::is_interrupted;
use crate::refusal::{COMMAND_UNKNOWN_CAUSES, RefusedError};
use crate::topics::CallError;

/// Why a request about tasks failed, or why a worker has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TasksError {
    /// The node refused the request with this error.
    #[error(transparent)]
    Refused(#[from] RefusedError),
    /// There is no connection, so the request was not sent.
    #[error("not connected to a node, and the request was not sent: {0}")]
    Disconnected(String),
    /// The response was lost: the node may have carried out the request, or may do so later. Only a task with an
    /// idempotency key can be submitted again safely.
    #[error(
        "the node may have carried out the request, or may still do so: {0}; submit again only with an \
         idempotency key"
    )]
    Unknown(String),
    /// The worker has ended.
    #[error("the worker has ended: {0}")]
    Ended(String),
}

impl TasksError {
    /// The error code, if the node refused the request; `COMMAND_UNKNOWN` if the response was lost. `None` for all
    /// other errors.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            TasksError::Refused(refused) => Some(refused.code),
            TasksError::Disconnected(_) | TasksError::Ended(_) => None,
            TasksError::Unknown(_) => Some(ErrorCode::CommandUnknown),
        }
    }

    /// Whether the connection was lost, so that the request can be sent again on the next connection.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, TasksError::Unknown(_) | TasksError::Disconnected(_)) && !is_interrupted()
    }

    /// Adds the name of the tenant to the refusal that the tenant does not exist.
    pub(super) fn with_tenant(mut self, tenant: Option<&[u8]>) -> TasksError {
        if let (TasksError::Refused(refused), Some(tenant)) = (&mut self, tenant)
            && refused.code == ErrorCode::TenantUnknown
        {
            refused.text = no_tenant(tenant);
        }
        self
    }

    pub(super) fn unexpected_response() -> TasksError {
        TasksError::Unknown("the node sent an unexpected response".to_owned())
    }
}

impl From<CallError> for TasksError {
    fn from(error: CallError) -> TasksError {
        match error {
            CallError::Refused(refused) if refused.code == ErrorCode::CommandUnknown => {
                TasksError::Unknown(COMMAND_UNKNOWN_CAUSES.to_owned())
            }
            CallError::Refused(refused) => TasksError::Refused(refused),
            CallError::Disconnected(why) => TasksError::Disconnected(why),
            CallError::Unknown(why) => TasksError::Unknown(why),
        }
    }
}

impl From<TaskDecodeError> for TasksError {
    fn from(error: TaskDecodeError) -> TasksError {
        TasksError::Unknown(format!("the response cannot be decoded: {error}"))
    }
}
