//! Where a task of kind [`PUBLISH`](crate::PUBLISH) publishes, and with whose permissions.
//!
//! ```text
//!  NewTask::subject = subject | subject, a zero byte, the user's name
//! ```
//!
//! A subject has no zero byte. Nodes add the user's name when they take the task in, and refuse one from a client: see
//! `Node::permit_task`.

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination<'a> {
    /// The subject.
    pub subject: &'a [u8],
    /// The user who submitted the task; `None` where nodes have no users.
    pub user: Option<&'a [u8]>,
}

impl<'a> Destination<'a> {
    /// Reads one.
    pub fn read(bytes: &'a [u8]) -> Destination<'a> {
        match bytes.iter().position(|byte| *byte == 0) {
            Some(at) => Destination { subject: &bytes[..at], user: Some(&bytes[at + 1..]) },
            None => Destination { subject: bytes, user: None },
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match self.user {
            Some(user) => [self.subject, &[0], user].concat(),
            None => self.subject.to_vec(),
        }
    }
}
