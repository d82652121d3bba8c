//! Errors of keys, leases and locks.

use std::io;

use dunlin_control::{ControlDecodeError, ControlRefusal};
use dunlin_journal::lacks_resource;
use dunlin_raft::RaftGroupError;

/// The reason why a command or read of keys failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The state refused the command; nothing changed.
    #[error("{0}")]
    Refused(#[from] ControlRefusal),
    /// Nothing changed: during all attempts, there was no leader, or too few nodes responded.
    #[error("no leader of the cluster responded within {waited_ms} ms: {why}")]
    NoLeader {
        /// The time that all attempts together took, ms.
        waited_ms: u64,
        /// The last error of an attempt.
        why: String,
    },
    /// The outcome is unknown: the leader changed, the command took too long, or a response was lost. The command may
    /// still be applied.
    #[error(
        "the cluster may have executed the command, or may still do so: the leader changed, the command took too \
         long, or a response was lost; repeat only conditional commands"
    )]
    Unknown,
    /// The limit on the number of waiting commands is reached.
    #[error("too many commands wait: the limit waiting_max = {waiting_max} is reached; retry later")]
    Busy {
        /// The limit on the number of waiting commands.
        waiting_max: usize,
    },
    /// The limit on the size of all waiting commands is reached.
    #[error(
        "too many commands wait: the limit waiting_bytes_max = {waiting_bytes_max} is reached; retry later"
    )]
    BusyBytes {
        /// The limit on the size of all waiting commands, bytes.
        waiting_bytes_max: usize,
    },
    /// The leader's disk is nearly full; nothing changed. The leader still accepts commands that do not make the state
    /// larger.
    #[error("the disk has no room for commands that make the state larger: {0}")]
    DiskFull(String),
    /// This node's keys or tasks cannot start yet, or the leader can store no larger state, because the process or the
    /// machine lacks file descriptors or memory. Nothing changed. A later retry may succeed.
    #[error(
        "the process or the machine lacks file descriptors or memory: {0}; retry, or raise the limit of open files \
         (ulimit -n; LimitNOFILE in a systemd unit) and restart the node"
    )]
    LacksResource(String),
    /// The command is too long.
    #[error("a command of {bytes} bytes is longer than command_bytes_max = {bytes_max}")]
    TooLarge {
        /// The command's length, bytes.
        bytes: usize,
        /// The limit on a command's length, bytes.
        bytes_max: usize,
    },
    /// The bytes are not a valid command, query or response.
    #[error("{0}")]
    Malformed(#[from] ControlDecodeError),
    /// The cluster's members cannot be changed now.
    #[error("{0}")]
    Members(String),
    /// This node has left the cluster or is stopping.
    #[error("this node has left its cluster or is stopping: {0}")]
    Stopped(String),
    /// This node could not start its membership in the cluster.
    #[error("this node could not start its part of the cluster: {0}")]
    Start(String),
}

impl ControlError {
    pub(crate) fn from_start_error(error: io::Error) -> ControlError {
        match error.kind() {
            _ if lacks_resource(&error) => ControlError::LacksResource(error.to_string()),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                ControlError::DiskFull(error.to_string())
            }
            _ => ControlError::Start(error.to_string()),
        }
    }
}

/// Describes why the node cannot store more of `data`.
pub(crate) fn describe_shortage(data: &str, error: RaftGroupError) -> String {
    match error {
        RaftGroupError::NoRoom(why) => format!("no room for {data} on the disk of the data directory: {why}"),
        other => format!("cannot store more {data}: {}", ControlError::from(other)),
    }
}

impl From<RaftGroupError> for ControlError {
    fn from(error: RaftGroupError) -> ControlError {
        match error {
            RaftGroupError::Unknown => ControlError::Unknown,
            RaftGroupError::Busy(waiting_max) => ControlError::Busy { waiting_max },
            RaftGroupError::BusyBytes(waiting_bytes_max) => ControlError::BusyBytes { waiting_bytes_max },
            RaftGroupError::TooLarge { bytes, bytes_max } => ControlError::TooLarge { bytes, bytes_max },
            RaftGroupError::NoRoom(why) => ControlError::DiskFull(why),
            RaftGroupError::LacksResource(why) => ControlError::LacksResource(why),
            RaftGroupError::Stopped(why) => ControlError::Stopped(why),
            RaftGroupError::Refused(why) => ControlError::Members(why),
            other => ControlError::NoLeader { waited_ms: 0, why: other.to_string() },
        }
    }
}
