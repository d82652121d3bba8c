//! Errors of requests about keys, leases and locks.

use dunlin_control::ControlDecodeError;
use dunlin_wire::ErrorCode;

use crate::interrupt::is_interrupted;
use crate::refusal::{COMMAND_UNKNOWN_CAUSES, RefusedError};
use crate::topics::CallError;

/// Why a request about keys, leases or locks failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The last write of the key was not in the expected revision.
    #[error(
        "the key has revision {modified}, not the expected revision (0 means that the key does not exist)"
    )]
    Moved {
        /// The revision of the key's last write; 0 if the key does not exist.
        modified: u64,
    },
    /// The lease does not exist, or has ended.
    #[error("there is no lease {lease}, or it has ended")]
    NoLease {
        /// The number of the lease.
        lease: u64,
    },
    /// Another lease holds the lock.
    #[error("the lock is held under lease {holder}, with token {token}")]
    Held {
        /// The number of the lease that holds the lock.
        holder: u64,
        /// The fencing token of the lock's holder.
        token: u64,
    },
    /// The lease does not hold the lock.
    #[error("the lock is not held under lease {lease}")]
    NotHeld {
        /// The number of the lease.
        lease: u64,
    },
    /// The node refused the request for another reason.
    #[error(transparent)]
    Refused(RefusedError),
    /// There is no connection, so the request was not sent.
    #[error("not connected to a node, and the request was not sent: {0}")]
    Disconnected(String),
    /// The response was lost: the node may have carried out the request, or may do so later. Only a conditional write
    /// can be repeated safely.
    #[error(
        "the node may have carried out the request, or may still do so: {0}; repeat only conditional writes"
    )]
    Unknown(String),
}

impl KvError {
    /// The error code of the refusal, if the node refused the request.
    pub fn code(&self) -> Option<ErrorCode> {
        Some(match self {
            KvError::Moved { .. } => ErrorCode::KeyMoved,
            KvError::NoLease { .. } => ErrorCode::NoLease,
            KvError::Held { .. } => ErrorCode::LockHeld,
            KvError::NotHeld { .. } => ErrorCode::LockNotHeld,
            KvError::Refused(refused) => refused.code,
            KvError::Disconnected(_) => return None,
            KvError::Unknown(_) => ErrorCode::CommandUnknown,
        })
    }

    /// Whether the connection was lost, so that the request can be sent again on the next connection.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, KvError::Unknown(_) | KvError::Disconnected(_)) && !is_interrupted()
    }

    /// Whether the node refused a command because the cluster has no leader at present. A call that waits for a lock
    /// then sends its command again.
    pub(super) fn lacks_leader(&self) -> bool {
        matches!(self, KvError::Refused(refused) if refused.code == ErrorCode::NoLeader) && !is_interrupted()
    }

    pub(super) fn unexpected_response() -> KvError {
        KvError::Unknown("the node sent an unexpected response".to_owned())
    }
}

impl From<CallError> for KvError {
    fn from(error: CallError) -> KvError {
        let refused = match error {
            CallError::Refused(refused) => refused,
            CallError::Disconnected(why) => return KvError::Disconnected(why),
            CallError::Unknown(why) => return KvError::Unknown(why),
        };
        let [a, b, _] = refused.numbers;
        match refused.code {
            ErrorCode::KeyMoved => KvError::Moved { modified: a },
            ErrorCode::NoLease => KvError::NoLease { lease: a },
            ErrorCode::LockHeld => KvError::Held { holder: a, token: b },
            ErrorCode::LockNotHeld => KvError::NotHeld { lease: a },
            ErrorCode::CommandUnknown => KvError::Unknown(COMMAND_UNKNOWN_CAUSES.to_owned()),
            _ => KvError::Refused(refused),
        }
    }
}

impl From<ControlDecodeError> for KvError {
    fn from(error: ControlDecodeError) -> KvError {
        KvError::Unknown(format!("the response cannot be decoded: {error}"))
    }
}
