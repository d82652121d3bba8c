//! Defines the errors of a Raft group.

use std::io;

use openraft::errors::{ClientWriteError, ForwardToLeader, LinearizableReadError, RaftError};

use crate::network::RaftMember;
use crate::type_config::Types;

/// The reason why a Raft group did not execute a command or a read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RaftGroupError {
    /// This node is not the leader. The request changed nothing and must be sent to the leader.
    #[error("this node is not the leader{}", .leader.as_ref().map_or_else(String::new, |leader| format!("; node {} at {} is", leader.id, leader.address)))]
    NotLeader {
        /// The leader, if known.
        leader: Option<RaftMember>,
    },
    /// The outcome is unknown: the leader changed, or the command took too long. The command may still be applied.
    #[error(
        "the cluster may have executed the command, or may still do so: the leader changed, or the command took \
         too long; repeat only conditional commands"
    )]
    Unknown,
    /// Less than a majority of the nodes responds.
    #[error("no majority of the nodes responds: {0}")]
    NoQuorum(String),
    /// The command was refused, because as many commands already wait as `waiting_max` allows.
    #[error("too many commands wait: the limit waiting_max = {0} is reached; retry later")]
    Busy(usize),
    /// The command was refused, because the commands that already wait have too many bytes.
    #[error("too many commands wait: the limit waiting_bytes_max = {0} is reached; retry later")]
    BusyBytes(usize),
    /// The command is too long.
    #[error("a command of {bytes} bytes is longer than command_bytes_max = {bytes_max}")]
    TooLarge {
        /// The command's length, bytes.
        bytes: usize,
        /// The limit, bytes.
        bytes_max: usize,
    },
    /// The leader's disk is nearly full. The command changed nothing and can be retried later. Commands that make the
    /// state smaller are still accepted.
    #[error("the disk has no room for commands that make the state larger: {0}")]
    NoRoom(String),
    /// The leader's process or machine lacks file descriptors or memory. The command changed nothing and can be retried
    /// later. Commands that make the state smaller may still be accepted.
    #[error("the process or the machine lacks file descriptors or memory: {0}")]
    LacksResource(String),
    /// The group cannot execute the request at present, for the given reason.
    #[error("{0}")]
    Refused(String),
    /// This node does not take part in the group, for the given reason.
    #[error("this node has stopped: {0}")]
    Stopped(String),
}

impl From<ForwardToLeader<Types>> for RaftGroupError {
    fn from(forward: ForwardToLeader<Types>) -> RaftGroupError {
        let leader = forward.leader_id.zip(forward.leader_node);
        RaftGroupError::NotLeader { leader: leader.map(|(id, node)| RaftMember { id, address: node.addr }) }
    }
}

impl From<RaftError<Types, ClientWriteError<Types>>> for RaftGroupError {
    fn from(error: RaftError<Types, ClientWriteError<Types>>) -> RaftGroupError {
        match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => forward.into(),
            RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => RaftGroupError::Unknown,
            RaftError::APIError(other) => RaftGroupError::Refused(other.to_string()),
            RaftError::Fatal(fatal) => RaftGroupError::Stopped(fatal.to_string()),
        }
    }
}

impl From<RaftError<Types, LinearizableReadError<Types>>> for RaftGroupError {
    fn from(error: RaftError<Types, LinearizableReadError<Types>>) -> RaftGroupError {
        match error {
            RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)) => forward.into(),
            RaftError::APIError(LinearizableReadError::QuorumNotEnough(missing)) => {
                let responded: Vec<String> = missing.got.iter().map(u64::to_string).collect();
                RaftGroupError::NoQuorum(format!("only these nodes have responded: {}", responded.join(", ")))
            }
            RaftError::Fatal(fatal) => RaftGroupError::Stopped(fatal.to_string()),
        }
    }
}

/// Makes the error for damaged files, which also advises how to repair the node.
pub(crate) fn damaged(what: &str, why: &str) -> io::Error {
    let advice = "the node may have lost data that it acknowledged. If it belongs to a cluster, remove it from the \
         cluster, and let it join anew with an empty directory. If it is a single node, restore its data \
         directory from a backup";
    io::Error::new(io::ErrorKind::InvalidData, format!("this node's {what} is damaged ({why}): {advice}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use openraft::errors::QuorumNotEnough;

    use super::*;

    #[test]
    fn error_for_a_missing_majority_names_the_nodes_that_responded() {
        let missing = QuorumNotEnough { cluster: "BasicNode { … }".to_owned(), got: BTreeSet::from([5]) };
        let error = RaftGroupError::from(RaftError::APIError(LinearizableReadError::from(missing)));
        assert_eq!(
            error.to_string(),
            "no majority of the nodes responds: only these nodes have responded: 5"
        );
    }

    /// The error has one text for both causes, and this node cannot always tell them apart.
    #[test]
    fn error_for_unknown_outcome_names_both_possible_causes() {
        let text = RaftGroupError::Unknown.to_string();
        let causes = "the leader changed, or the command took too long";
        assert!(text.contains(causes), "{text}");
    }
}
