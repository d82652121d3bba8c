//! The room left on the log's disk, set by the writer thread and read by others.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What the disk has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Everything.
    Ample = 0,
    /// Only commands that free room, and raft's own messages: the reserve is in use.
    Low = 1,
    /// Nothing: writes wait.
    Out = 2,
}

/// The room left on a disk. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room(Arc<Inside>);

#[derive(Debug, Default)]
struct Inside {
    level: AtomicU8,
    /// Whether room was short since the log was last shortened.
    is_owed: AtomicBool,
    why: Mutex<String>,
}

impl Room {
    /// What there is room for now.
    pub(crate) fn level(&self) -> Level {
        match self.0.level.load(Ordering::Acquire) {
            0 => Level::Ample,
            1 => Level::Low,
            _ => Level::Out,
        }
    }

    /// The disk's last error; `None` while there is enough room.
    pub(crate) fn lacking(&self) -> Option<String> {
        let why = || self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.level() > Level::Ample).then(why)
    }

    /// Whether the log should be shortened to free room.
    pub(crate) fn is_wanted(&self) -> bool {
        self.level() > Level::Ample || self.0.is_owed.load(Ordering::Acquire)
    }

    /// Reports that the log is being shortened.
    pub(super) fn is_being_made(&self) {
        self.0.is_owed.store(false, Ordering::Release);
    }

    pub(super) fn is_ample(&self) {
        self.0.level.store(Level::Ample as u8, Ordering::Release);
    }

    pub(super) fn is_short(&self, level: Level, why: String) {
        *self.0.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
        self.0.is_owed.store(true, Ordering::Release);
        self.0.level.store(level as u8, Ordering::Release);
    }
}
