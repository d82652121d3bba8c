//! Messages for tasks: commands, queries, workers and their orders.
//!
//! The bytes are opaque here: the scheduler's crate encodes them, with a version of its own. One message
//! carries many commands, and one reply their results.

use crate::code::Refusal;
use crate::control::LongBytes;
use crate::error::WireError;
use crate::header::MessageKind;
use crate::layout::{Fields, Layout, choice, layout};

choice! {
    /// The content of a TASKS message: commands, a query, or a worker that attaches.
    pub enum TasksKind {
        /// Commands, each after its length, a `u32`. The reply holds a [`TaskCommandResult`] for each command.
        Commands = 1,
        /// A linearizable query.
        Question = 2,
        /// A stale query, answered from the node's state.
        StaleQuestion = 3,
        /// Attaches a worker to this connection.
        Attach = 4,
    }
}

layout! {
    /// Message TASKS: commands about tasks, a query of them, or a worker that attaches.
    pub struct Tasks<'a> {
        /// The request's number, repeated in the reply.
        pub request: u32,
        /// The kind of the bytes.
        pub kind: TasksKind,
        /// The commands, query or worker.
        pub bytes: LongBytes<'a>,
    }
}

layout! {
    /// Message TASKED: the node's reply to a TASKS message, such as the results of its commands.
    pub struct TasksResult<'a> {
        /// The request's number.
        pub request: u32,
        /// The reply's bytes.
        pub bytes: LongBytes<'a>,
    }
}

layout! {
    /// Message TASK_ORDERS: orders to the workers of this connection.
    pub struct TaskOrders<'a> {
        /// The orders' bytes.
        pub bytes: LongBytes<'a>,
    }
}

const DONE: u8 = 1;
const REFUSED: u8 = 2;

/// The result of one command in a TASKS message: the reply, or the refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskCommandResult<'a> {
    /// The command was executed; the reply's bytes.
    Done(&'a [u8]),
    /// The command was refused.
    Refused(Refusal<'a>),
}

impl<'a> TaskCommandResult<'a> {
    /// Appends the result: a byte 1 and the reply's bytes after their `u32` length, or a byte 2 and a refusal.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            TaskCommandResult::Done(bytes) => {
                out.push(DONE);
                LongBytes(bytes).write(out);
            }
            TaskCommandResult::Refused(refusal) => {
                out.push(REFUSED);
                refusal.write(out);
            }
        }
    }

    /// Decodes all results; ends with an error at invalid bytes.
    pub fn read_all(bytes: &'a [u8]) -> impl Iterator<Item = Result<TaskCommandResult<'a>, WireError>> {
        let mut fields = Fields { kind: MessageKind::TasksResult, rest: bytes, version: crate::VERSION };
        std::iter::from_fn(move || {
            if fields.rest.is_empty() {
                return None;
            }
            let read = TaskCommandResult::read(&mut fields);
            if read.is_err() {
                fields.rest = &[];
            }
            Some(read)
        })
    }

    fn read(fields: &mut Fields<'a>) -> Result<TaskCommandResult<'a>, WireError> {
        match u8::read(fields)? {
            DONE => Ok(TaskCommandResult::Done(LongBytes::read(fields)?.0)),
            REFUSED => Refusal::read(fields).map(TaskCommandResult::Refused),
            _ => Err(fields.unsound("answer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::ErrorCode;

    #[test]
    fn task_responses_are_read_back_or_end_in_an_error_if_cut() {
        let answers = [
            TaskCommandResult::Done(b"reply"),
            TaskCommandResult::Refused(Refusal {
                numbers: [1, 2, 3],
                ..Refusal::new(ErrorCode::StaleToken, "why")
            }),
            TaskCommandResult::Done(b""),
        ];
        let mut bytes = Vec::new();
        answers.iter().for_each(|answer| answer.write(&mut bytes));
        let read: Vec<_> = TaskCommandResult::read_all(&bytes).map(Result::unwrap).collect();
        assert_eq!(read, answers);
        for len in 0..bytes.len() {
            let read: Vec<_> = TaskCommandResult::read_all(&bytes[..len]).collect();
            assert!(read.len() < answers.len() || read.last().is_some_and(Result::is_err), "{len}");
        }
        assert!(TaskCommandResult::read_all(&[7]).all(|read| read.is_err()));
    }
}
