//! The room left on the log's disk. The log's writer thread sets this information, and other threads read it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::RaftGroupError;

/// The kinds of writes for which a disk has room: all, only necessary ones, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpaceLevel {
    /// There is room for all writes.
    Ample = 0,
    /// A reserve is in use or not complete. Only commands that free room, and Raft's own messages, are written.
    Low = 1,
    /// No room is left. All writes wait.
    Out = 2,
}

/// The room left on the disk of a group's log and snapshots. Clones share the information.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskSpace(Arc<DiskSpaceState>);

#[derive(Debug, Default)]
struct DiskSpaceState {
    /// The level of the log alone.
    level: AtomicU8,
    /// Whether the reserve of the snapshots is not filled.
    lacks_snapshot_reserve: AtomicBool,
    /// Whether room was short since the log was last shortened.
    was_short: AtomicBool,
    /// Whether the group is ending. Writes then do not wait for room.
    is_ending: AtomicBool,
    /// The error of commands that make the state larger, while room is short.
    shortage: Mutex<Option<RaftGroupError>>,
}

impl DiskSpace {
    /// The writes for which there is room now. While the reserve of the snapshots is not filled, the level is not
    /// [`SpaceLevel::Ample`]: on a full disk without this reserve, no snapshot could shorten the log.
    pub(crate) fn level(&self) -> SpaceLevel {
        match self.0.lacks_snapshot_reserve.load(Ordering::Acquire) {
            true => self.log_level().max(SpaceLevel::Low),
            false => self.log_level(),
        }
    }

    /// The writes for which the log has room, whether or not the reserve of the snapshots is filled.
    pub(super) fn log_level(&self) -> SpaceLevel {
        match self.0.level.load(Ordering::Acquire) {
            0 => SpaceLevel::Ample,
            1 => SpaceLevel::Low,
            _ => SpaceLevel::Out,
        }
    }

    /// The reason for which commands that make the state larger are refused; `None` while there is enough room.
    pub(crate) fn shortage(&self) -> Option<RaftGroupError> {
        if self.log_level() > SpaceLevel::Ample {
            return self.0.shortage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        let lacks_reserve = self.level() > SpaceLevel::Ample;
        let why = || "the disk has too little room for the reserve of the snapshots".to_owned();
        lacks_reserve.then(|| RaftGroupError::NoRoom(why()))
    }

    /// Whether the log should remove entries to free room.
    pub(crate) fn needs_purge(&self) -> bool {
        self.level() > SpaceLevel::Ample || self.0.was_short.load(Ordering::Acquire)
    }

    /// Lets writes that wait for room fail. Otherwise a group whose vote waits for room could not end.
    pub(crate) fn cancel_waits(&self) {
        self.0.is_ending.store(true, Ordering::Release);
    }

    /// Reports whether the reserve of the snapshots is filled.
    pub(crate) fn set_snapshot_reserve_filled(&self, is_filled: bool) {
        self.0.lacks_snapshot_reserve.store(!is_filled, Ordering::Release);
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

    pub(super) fn set_short(&self, level: SpaceLevel, shortage: RaftGroupError) {
        *self.0.shortage.lock().unwrap_or_else(PoisonError::into_inner) = Some(shortage);
        self.set_short_again(level);
    }

    /// Sets the level, and keeps the reason of the last shortage.
    pub(super) fn set_short_again(&self, level: SpaceLevel) {
        self.0.was_short.store(true, Ordering::Release);
        self.0.level.store(level as u8, Ordering::Release);
    }
}
