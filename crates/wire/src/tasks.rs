//! Defines the messages for tasks: commands, queries, and orders for workers.
//!
//! The commands, queries and orders are byte strings here. The crate `tasks` encodes them, and has a version number of
//! its own for this. A message may contain many commands; its reply contains the results of all of them.

use crate::code::Refusal;
use crate::control::U32PrefixedBytes;
use crate::error::WireError;
use crate::header::MessageKind;
use crate::layout::{Fields, Layout, choice, layout};

choice! {
    /// The content of a TASKS message: commands, a query, or a request to attach a worker.
    pub enum TasksKind {
        /// Commands, each preceded by its length as a `u32`. The reply contains one [`TaskCommandResult`] for each of
        /// them.
        Commands = 1,
        /// A linearizable query.
        Query = 2,
        /// A stale query, which the node answers from its own state.
        StaleQuery = 3,
        /// A request to attach a worker to this connection.
        Attach = 4,
    }
}

layout! {
    /// Message TASKS: contains commands for tasks, a query about tasks, or a request to attach a worker.
    pub struct Tasks<'a> {
        /// The request's number. The reply repeats it.
        pub request: u32,
        /// The kind of content in `bytes`.
        pub kind: TasksKind,
        /// The encoded commands, query or request.
        pub bytes: U32PrefixedBytes<'a>,
    }
}

layout! {
    /// Message TASKED: the reply to a TASKS message, for example the results of its commands.
    pub struct TasksResult<'a> {
        /// The number of the request to which this is the reply.
        pub request: u32,
        /// The encoded reply.
        pub bytes: U32PrefixedBytes<'a>,
    }
}

layout! {
    /// Message TASK_ORDERS: contains orders to the workers of this connection.
    pub struct TaskOrders<'a> {
        /// The encoded orders.
        pub bytes: U32PrefixedBytes<'a>,
    }
}

const DONE: u8 = 1;
const REFUSED: u8 = 2;

/// The result of one command in a TASKS message: a reply or a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskCommandResult<'a> {
    /// The command was executed. This is its encoded reply.
    Done(&'a [u8]),
    /// The command was refused.
    Refused(Refusal<'a>),
}

impl<'a> TaskCommandResult<'a> {
    /// Appends the result to `out`: a byte 1, the length of the reply (`u32`) and the reply; or a byte 2 and the
    /// refusal.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            TaskCommandResult::Done(bytes) => {
                out.push(DONE);
                U32PrefixedBytes(bytes).write(out);
            }
            TaskCommandResult::Refused(refusal) => {
                out.push(REFUSED);
                refusal.write(out);
            }
        }
    }

    /// Decodes all results in `bytes`. If a result is invalid, the iterator returns an error for it and ends.
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
            DONE => Ok(TaskCommandResult::Done(U32PrefixedBytes::read(fields)?.0)),
            REFUSED => Refusal::read(fields).map(TaskCommandResult::Refused),
            _ => Err(fields.invalid_value("answer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::ErrorCode;

    #[test]
    fn task_responses_are_read_back_and_truncated_ones_are_refused() {
        let results = [
            TaskCommandResult::Done(b"reply"),
            TaskCommandResult::Refused(Refusal {
                numbers: [1, 2, 3],
                ..Refusal::new(ErrorCode::StaleToken, "why")
            }),
            TaskCommandResult::Done(b""),
        ];
        let mut bytes = Vec::new();
        results.iter().for_each(|result| result.write(&mut bytes));
        let read: Vec<_> = TaskCommandResult::read_all(&bytes).map(Result::unwrap).collect();
        assert_eq!(read, results);
        for len in 0..bytes.len() {
            let read: Vec<_> = TaskCommandResult::read_all(&bytes[..len]).collect();
            assert!(read.len() < results.len() || read.last().is_some_and(Result::is_err), "{len}");
        }
        assert!(TaskCommandResult::read_all(&[7]).all(|read| read.is_err()));
    }
}
