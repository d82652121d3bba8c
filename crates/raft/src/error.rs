//! Why a group does not do what it was asked to.

use std::io;

use openraft::errors::{ClientWriteError, ForwardToLeader, LinearizableReadError, RaftError};

use crate::network::Member;
use crate::vocabulary::Types;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// Nothing was done: ask the leader.
    #[error("this node does not lead{}", .leader.as_ref().map_or_else(String::new, |leader| format!("; {} at {} does", leader.id, leader.address)))]
    NotLeader {
        /// Who leads, if that is known.
        leader: Option<Member>,
    },
    /// The leader changed meanwhile: it may have been done, or may still be.
    #[error("the leader changed meanwhile: it may have been done or not")]
    Unknown,
    /// Not enough nodes answer.
    #[error("too few nodes answer: {0}")]
    NoQuorum(String),
    /// As many wait as may.
    #[error("waiting_max = {0} commands wait already")]
    Busy(usize),
    /// A command is longer than one may be.
    #[error("a command of {bytes} bytes is longer than command_bytes_max = {bytes_max}")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The disk of the node that leads is full, or nearly: nothing was done. It is worth trying again later; what makes the state
    /// smaller is not refused.
    #[error("no room for what makes the state larger: {0}")]
    NoRoom(String),
    /// It cannot be done to this group now.
    #[error("{0}")]
    Refused(String),
    /// This node takes no part any more.
    #[error("this node has stopped: {0}")]
    Stopped(String),
}

impl From<ForwardToLeader<Types>> for GroupError {
    fn from(forward: ForwardToLeader<Types>) -> GroupError {
        let leader = forward.leader_id.zip(forward.leader_node);
        GroupError::NotLeader { leader: leader.map(|(id, node)| Member { id, address: node.addr }) }
    }
}

impl From<RaftError<Types, ClientWriteError<Types>>> for GroupError {
    fn from(error: RaftError<Types, ClientWriteError<Types>>) -> GroupError {
        match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => forward.into(),
            RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => GroupError::Unknown,
            RaftError::APIError(other) => GroupError::Refused(other.to_string()),
            RaftError::Fatal(fatal) => GroupError::Stopped(fatal.to_string()),
        }
    }
}

impl From<RaftError<Types, LinearizableReadError<Types>>> for GroupError {
    fn from(error: RaftError<Types, LinearizableReadError<Types>>) -> GroupError {
        match error {
            RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)) => forward.into(),
            RaftError::APIError(other) => GroupError::NoQuorum(other.to_string()),
            RaftError::Fatal(fatal) => GroupError::Stopped(fatal.to_string()),
        }
    }
}

/// What a node keeps is damaged, and what to do.
pub(crate) fn damaged(what: &str, why: &str) -> io::Error {
    let advice = "it may have lost what it acknowledged. A node of a cluster: remove it from the cluster, and let it join anew with an \
                  empty directory. A node alone: restore its data directory from a backup";
    io::Error::new(io::ErrorKind::InvalidData, format!("this node's {what} is damaged ({why}), and {advice}"))
}
