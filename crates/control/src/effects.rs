//! What follows from commands for others than who asked.

use crate::change::Change;
use crate::item::Key;

/// What happened, in order; whoever applies commands acts on it, and clears it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Effects {
    /// For those who watch.
    pub changes: Vec<Change>,
    /// For those who waited.
    pub granted: Vec<Granted>,
    /// Leases that are no more.
    pub ended: Vec<u64>,
}

/// A lock has become that of one who waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The lock.
    pub name: Key,
    /// Whose it is now.
    pub lease: u64,
    /// Its token.
    pub token: u64,
}
