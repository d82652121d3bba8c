//! Whether the disk has room for what is asked to be kept, as the thread that writes found it and others look it up.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Everything.
    Ample = 0,
    /// What makes room, and what nodes say among themselves: the reserve is being used.
    Low = 1,
    /// Nothing: what was handed over waits.
    Out = 2,
}

/// See the module. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room(Arc<Inside>);

#[derive(Debug, Default)]
struct Inside {
    level: AtomicU8,
    /// There was too little since the log was shortened last.
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

    /// What the disk said when it had too little last; nothing as long as it has enough.
    pub(crate) fn lacking(&self) -> Option<String> {
        let why = || self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.level() > Level::Ample).then(why)
    }

    /// Whether the log is to be shortened for its room: there is too little, or there was and nothing was done about it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.level() > Level::Ample || self.0.is_owed.load(Ordering::Acquire)
    }

    /// The log is being shortened.
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
