//! The destination of a task of kind [`PUBLISH`](crate::PUBLISH): a subject, and the user whose permissions apply.
//!
//! ```text
//!  NewTask::subject = subject | subject, a zero byte, the user's name
//! ```
//!
//! A subject has no zero byte. The node that accepts a task adds the user's name. If the client itself has added a
//! name, the node refuses the task (`Node::permit_task`).

/// The destination of a task's payload: the subject, and the user whose permissions are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination<'a> {
    /// The subject.
    pub subject: &'a [u8],
    /// User who submitted the task; `None` on nodes without users.
    pub user: Option<&'a [u8]>,
}

impl<'a> Destination<'a> {
    /// Decodes a destination.
    pub fn read(bytes: &'a [u8]) -> Destination<'a> {
        match bytes.iter().position(|byte| *byte == 0) {
            Some(at) => Destination { subject: &bytes[..at], user: Some(&bytes[at + 1..]) },
            None => Destination { subject: bytes, user: None },
        }
    }

    /// Encodes the destination.
    pub fn bytes(&self) -> Vec<u8> {
        match self.user {
            Some(user) => [self.subject, &[0], user].concat(),
            None => self.subject.to_vec(),
        }
    }
}
