//! Limits by a key: tasks of a tenant that have the same value under it.
//!
//! A place in a group is taken when a task becomes ready, not when it starts: a lane never holds more of a group than may
//! run, so nobody who is next has to be passed over, however many wait. It is given back when the task no longer runs
//! or no longer wants to. Who finds no place waits with the group, by priority and age.

use std::sync::Arc;

use imbl::OrdSet;

/// Which group: of whom, by which limit, with which value.
pub(crate) type GroupKey = (u32, u32, Arc<[u8]>);

/// Those that have the same value under a key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    /// Ready or held.
    pub(crate) places: u32,
    /// How each ranks, and which it is.
    pub(crate) waiting: OrdSet<(i64, u32)>,
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        self.places == 0 && self.waiting.is_empty()
    }
}
