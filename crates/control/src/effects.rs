//! The effects that a command has besides its reply, such as changes for watches.

use crate::change::Change;
use crate::item::Key;

/// The effects of commands besides their replies, such as changes for watches. The caller of `apply` clears this
/// struct.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControlEffects {
    /// Changes for watches.
    pub changes: Vec<Change>,
    /// Locks that were granted to waiting leases.
    pub granted: Vec<LockGrant>,
    /// Leases that ended.
    pub ended: Vec<u64>,
    /// Bytes that transactions have read since the caller last set this to 0, at most
    /// [`ENTRY_READ_BYTES_MAX`](crate::ControlStateLimits::ENTRY_READ_BYTES_MAX).
    pub read_bytes: u64,
}

/// A lock that was granted to a waiting lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockGrant {
    /// The lock's name.
    pub name: Key,
    /// The new holder.
    pub lease: u64,
    /// The new holder's fencing token.
    pub token: u64,
}
