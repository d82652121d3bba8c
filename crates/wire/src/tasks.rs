//! Tasks: commands and questions on their way to the scheduler, workers, and orders on their way to them.
//!
//! What they are is not read here: they pass as the bytes of that crate, which carry a version of their own. Many commands go in one
//! message, and what came of them comes back in one.

use crate::code::Refusal;
use crate::control::Long;
use crate::error::WireError;
use crate::header::Kind;
use crate::layout::{Fields, Layout, choice, layout};

choice! {
    /// What the bytes are.
    pub enum TasksKind {
        /// Commands, each behind its length, a `u32`. The answer holds [`TaskAnswers`].
        Commands = 1,
        /// A question, whose answer is as fresh as all that was answered to anybody before.
        Question = 2,
        /// A question that is answered as the node has it.
        StaleQuestion = 3,
        /// A worker is to be sent what is for it, by this connection.
        Attach = 4,
    }
}

layout! {
    /// Commands, a question, or a worker that attaches.
    pub struct Tasks<'a> {
        /// Its number, under which it is answered.
        pub request: u32,
        /// Which it is.
        pub kind: TasksKind,
        /// Its bytes.
        pub bytes: Long<'a>,
    }
}

layout! {
    /// What came of it.
    pub struct Tasked<'a> {
        /// The request's number.
        pub request: u32,
        /// The answer's bytes.
        pub bytes: Long<'a>,
    }
}

layout! {
    /// What the connection's workers are to do.
    pub struct TaskOrders<'a> {
        /// The orders' bytes.
        pub bytes: Long<'a>,
    }
}

const DONE: u8 = 1;
const REFUSED: u8 = 2;

/// What came of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskAnswer<'a> {
    /// It was taken in; the reply's bytes.
    Done(&'a [u8]),
    /// It was refused.
    Refused(Refusal<'a>),
}

impl<'a> TaskAnswer<'a> {
    /// Appends it to others: `1 u8, bytes behind a u32` or `2 u8, refusal`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            TaskAnswer::Done(bytes) => {
                out.push(DONE);
                Long(bytes).write(out);
            }
            TaskAnswer::Refused(refusal) => {
                out.push(REFUSED);
                refusal.write(out);
            }
        }
    }

    /// Reads one after another; ends with an error where the bytes are no answers.
    pub fn read_all(bytes: &'a [u8]) -> impl Iterator<Item = Result<TaskAnswer<'a>, WireError>> {
        let mut fields = Fields { kind: Kind::Tasked, rest: bytes, version: crate::VERSION };
        std::iter::from_fn(move || {
            if fields.rest.is_empty() {
                return None;
            }
            let read = TaskAnswer::read(&mut fields);
            if read.is_err() {
                fields.rest = &[];
            }
            Some(read)
        })
    }

    fn read(fields: &mut Fields<'a>) -> Result<TaskAnswer<'a>, WireError> {
        match u8::read(fields)? {
            DONE => Ok(TaskAnswer::Done(Long::read(fields)?.0)),
            REFUSED => Refusal::read(fields).map(TaskAnswer::Refused),
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
            TaskAnswer::Done(b"reply"),
            TaskAnswer::Refused(Refusal { numbers: [1, 2, 3], ..Refusal::new(ErrorCode::StaleToken, "why") }),
            TaskAnswer::Done(b""),
        ];
        let mut bytes = Vec::new();
        answers.iter().for_each(|answer| answer.write(&mut bytes));
        let read: Vec<_> = TaskAnswer::read_all(&bytes).map(Result::unwrap).collect();
        assert_eq!(read, answers);
        for len in 0..bytes.len() {
            let read: Vec<_> = TaskAnswer::read_all(&bytes[..len]).collect();
            assert!(read.len() < answers.len() || read.last().is_some_and(Result::is_err), "{len}");
        }
        assert!(TaskAnswer::read_all(&[7]).all(|read| read.is_err()));
    }
}
