//! Converts the scheduler's refusals and errors into the [`Refused`] that all protocols report.

use dunlin_tasks::{ExcessValues, TaskCommand, TaskRefusal};
use dunlin_wire::ErrorCode as Code;

use super::TasksError;
use crate::refusal::Refused;

impl Refused {
    /// Converts the scheduler's refusal of a command. If `excess` contains the value that exceeds a limit, the text
    /// names this value.
    pub fn from_task_refusal(refusal: &TaskRefusal, excess: Option<&ExcessValues>) -> Refused {
        let refused = Refused::from(refusal);
        match excess.and_then(|excess| excess.text(refusal)) {
            Some(text) => Refused { text, ..refused },
            None => refused,
        }
    }

    /// Converts the error with which `command` failed. If a value of the command exceeds a limit, the text names this
    /// value.
    pub(crate) fn from_task_error(command: &TaskCommand<'_>, error: &TasksError) -> Refused {
        match error {
            TasksError::Refused(refusal) => {
                Refused::from_task_refusal(refusal, ExcessValues::of(command).as_deref())
            }
            _ => Refused::from(error),
        }
    }
}

impl From<&TaskRefusal> for Refused {
    fn from(refusal: &TaskRefusal) -> Refused {
        let of = |code, numbers| Refused { numbers, ..Refused::new(code, refusal.to_string()) };
        let named = |code, numbers, name: &str| Refused { numbers, ..Refused::new(code, name) };
        match *refusal {
            TaskRefusal::NoTenant => Refused::new(Code::TenantUnknown, refusal.to_string()),
            TaskRefusal::NoTask { task } => of(Code::NoTask, [task, 0, 0]),
            TaskRefusal::NoWorker { worker } => of(Code::NoWorker, [worker, 0, 0]),
            TaskRefusal::NameTooLong { bytes, bytes_max } => {
                named(Code::TaskTooLarge, [bytes, bytes_max, 0], "name_bytes_max")
            }
            TaskRefusal::PayloadTooLong { bytes, bytes_max } => {
                named(Code::TaskTooLarge, [bytes, bytes_max, 0], "payload_bytes_max")
            }
            TaskRefusal::ResultTooLong { bytes, bytes_max } => {
                named(Code::TaskTooLarge, [bytes, bytes_max, 0], "result_bytes_max")
            }
            TaskRefusal::NeedsTooMuch { bytes, bytes_max } => {
                named(Code::TaskTooLarge, [bytes, bytes_max, 0], "need_bytes_max")
            }
            TaskRefusal::TooMany { limit, count, count_max } => {
                Refused { numbers: [count_max, count, 0], ..Refused::limit(limit.name(), count_max) }
            }
            TaskRefusal::QueueFull { queued, queued_max, retry_after_ms } => {
                of(Code::QueueFull, [retry_after_ms, queued, queued_max])
            }
            TaskRefusal::StaleToken { task, token } => of(Code::StaleToken, [task, token, 0]),
            TaskRefusal::NotHeld { task, .. } => of(Code::StaleToken, [task, 0, 0]),
            TaskRefusal::Over { task }
            | TaskRefusal::NotDead { task }
            | TaskRefusal::DependencyCancelled { task, .. }
            | TaskRefusal::KeyCancelled { task, .. } => of(Code::TaskOver, [task, 0, 0]),
            TaskRefusal::NoRoom { bytes, bytes_max } | TaskRefusal::NoShare { bytes, bytes_max } => {
                of(Code::NoRoom, [bytes, bytes_max, 0])
            }
            _ => Refused::new(Code::BadTask, refusal.to_string()),
        }
    }
}

impl From<&TasksError> for Refused {
    fn from(error: &TasksError) -> Refused {
        match error {
            TasksError::Refused(refusal) => refusal.into(),
            TasksError::Malformed(error) => Refused::new(Code::Protocol, error.to_string()),
            TasksError::Agreeing(error) => error.into(),
        }
    }
}
