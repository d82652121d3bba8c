//! The room left on the log's disk. The writer thread sets the value, and other threads read it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The kinds of writes for which a disk has room: all, only necessary ones, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpaceLevel {
    /// There is room for all writes.
    Ample = 0,
    /// The reserve is in use. Only commands that free room, and Raft's own messages, are written.
    Low = 1,
    /// No room is left. All writes wait.
    Out = 2,
}

/// The room left on a disk. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskSpace(Arc<DiskSpaceState>);

#[derive(Debug, Default)]
struct DiskSpaceState {
    level: AtomicU8,
    /// Whether room was short since the log was last shortened.
    was_short: AtomicBool,
    /// Whether the group is ending. Writes then do not wait for room.
    is_ending: AtomicBool,
    why: Mutex<String>,
}

impl DiskSpace {
    /// The writes for which there is room now.
    pub(crate) fn level(&self) -> SpaceLevel {
        match self.0.level.load(Ordering::Acquire) {
            0 => SpaceLevel::Ample,
            1 => SpaceLevel::Low,
            _ => SpaceLevel::Out,
        }
    }

    /// The disk's last error; `None` while there is enough room.
    pub(crate) fn shortage(&self) -> Option<String> {
        let why = || self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.level() > SpaceLevel::Ample).then(why)
    }

    /// Whether the log should remove entries to free room.
    pub(crate) fn needs_purge(&self) -> bool {
        self.level() > SpaceLevel::Ample || self.0.was_short.load(Ordering::Acquire)
    }

    /// Lets writes that wait for room fail. Otherwise a group whose vote waits for room could not end.
    pub(crate) fn cancel_waits(&self) {
        self.0.is_ending.store(true, Ordering::Release);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.0.is_ending.load(Ordering::Acquire)
    }

    /// Reports that the log is removing entries.
    pub(super) fn purge_started(&self) {
        self.0.was_short.store(false, Ordering::Release);
    }

    pub(super) fn set_ample(&self) {
        self.0.level.store(SpaceLevel::Ample as u8, Ordering::Release);
    }

    pub(super) fn set_short(&self, level: SpaceLevel, why: String) {
        *self.0.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
        self.0.was_short.store(true, Ordering::Release);
        self.0.level.store(level as u8, Ordering::Release);
    }
}
