//! Defines the effects that a command has besides its reply, such as the changes that watches must receive.

use crate::change::Change;
use crate::item::Key;

/// Collects the effects that commands have besides their replies, such as the changes that watches must receive.
/// `apply` only adds effects; the caller removes them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControlEffects {
    /// The changes that watches must receive, one for each revision.
    pub changes: Vec<Change>,
    /// Locks that were granted to waiting leases.
    pub granted: Vec<LockGrant>,
    /// The leases that ended.
    pub ended: Vec<u64>,
    /// The number of bytes that transactions have read since the caller last set this field to 0. It never exceeds
    /// [`ENTRY_READ_BYTES_MAX`](crate::ControlStateLimits::ENTRY_READ_BYTES_MAX).
    pub read_bytes: u64,
}

/// A lock that was granted to a waiting lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockGrant {
    /// The lock's name.
    pub name: Key,
    /// The lease that now holds the lock.
    pub lease: u64,
    /// The new holder's fencing token.
    pub token: u64,
}
