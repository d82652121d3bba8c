//! Why nothing came of what was asked.

use dunlin_control::{DecodeError, Refusal};
use dunlin_raft::GroupError;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The state refused the command: nothing was changed.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// Nothing was done: nobody led, or too few nodes answered, for so long.
    #[error("the cluster has no leader that {waited_ms} ms were enough to find: {why}")]
    NoLeader {
        /// How long it was tried, ms.
        waited_ms: u64,
        /// What stood in the way last.
        why: String,
    },
    /// It may have been done, or may still be: the leader changed, or an answer was lost.
    #[error("it is not known whether it was done: the leader changed, or an answer was lost")]
    Unknown,
    /// As many wait as may.
    #[error("waiting_max = {waiting_max} wait for the log already")]
    Busy {
        /// The limit.
        waiting_max: usize,
    },
    /// The disk of the node that leads is full, or nearly: nothing was done. What makes the state smaller is not refused.
    #[error("no room for what makes the state larger: {0}")]
    DiskFull(String),
    /// A command is longer than one may be.
    #[error("a command of {bytes} bytes is longer than command_bytes_max = {bytes_max}")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Bytes that are no command, question or answer.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// What is asked of the members cannot be done now.
    #[error("{0}")]
    Members(String),
    /// This node takes no part any more.
    #[error("this node takes no part any more: {0}")]
    Stopped(String),
    /// It could not begin to.
    #[error("this node could not take part: {0}")]
    Start(String),
}

impl From<GroupError> for ControlError {
    fn from(error: GroupError) -> ControlError {
        match error {
            GroupError::Unknown => ControlError::Unknown,
            GroupError::Busy(waiting_max) => ControlError::Busy { waiting_max },
            GroupError::TooLarge { bytes, bytes_max } => ControlError::TooLarge { bytes, bytes_max },
            GroupError::NoRoom(why) => ControlError::DiskFull(why),
            GroupError::Stopped(why) => ControlError::Stopped(why),
            GroupError::Refused(why) => ControlError::Members(why),
            other => ControlError::NoLeader { waited_ms: 0, why: other.to_string() },
        }
    }
}
