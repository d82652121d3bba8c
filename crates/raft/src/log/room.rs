//! Stores whether the disk has enough room for the log and the snapshots of a group. The log's writer thread updates
//! most of this information, and other threads read it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::RaftGroupError;

/// The writes for which the disk has room: all, only the necessary ones, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpaceLevel {
    /// There is room for all writes.
    Ample = 0,
    /// The reserve is in use or not filled. Only commands that make the state smaller, and Raft's own messages, are
    /// written.
    Low = 1,
    /// No room is left, so all writes wait.
    Out = 2,
}

/// How much room is left on the disk for the log and the snapshots of a group. Clones share this information.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskSpace(Arc<DiskSpaceState>);

#[derive(Debug, Default)]
struct DiskSpaceState {
    /// The level of the log, without regard to the reserve of the snapshots.
    level: AtomicU8,
    /// Whether the reserve of the snapshots is not filled.
    lacks_snapshot_reserve: AtomicBool,
    /// Whether room has been short since the last purge of the log.
    was_short: AtomicBool,
    /// Whether the group is ending. Writes then do not wait for room.
    is_ending: AtomicBool,
    /// The error with which commands that make the state larger are refused while room is short.
    shortage: Mutex<Option<RaftGroupError>>,
    /// The error with which commands that make the state larger are refused while the log has enough room, but the
    /// reserve of the snapshots is not filled.
    snapshot_shortage: Mutex<Option<RaftGroupError>>,
}

impl DiskSpace {
    /// Decides for which writes there is room at present. While the snapshots' reserve is not filled, the level is
    /// never [`SpaceLevel::Ample`]: if the disk became full, no snapshot could be written, and so no entries could be
    /// removed from the log.
    pub(crate) fn level(&self) -> SpaceLevel {
        match self.0.lacks_snapshot_reserve.load(Ordering::Acquire) {
            true => self.log_level().max(SpaceLevel::Low),
            false => self.log_level(),
        }
    }

    /// Decides which writes the log has room for, whether or not the reserve of the snapshots is filled.
    pub(super) fn log_level(&self) -> SpaceLevel {
        match self.0.level.load(Ordering::Acquire) {
            0 => SpaceLevel::Ample,
            1 => SpaceLevel::Low,
            _ => SpaceLevel::Out,
        }
    }

    /// The error with which commands that make the state larger are refused; `None` while there is enough room.
    pub(crate) fn shortage(&self) -> Option<RaftGroupError> {
        let shortage = if self.log_level() > SpaceLevel::Ample {
            &self.0.shortage
        } else if self.level() > SpaceLevel::Ample {
            &self.0.snapshot_shortage
        } else {
            return None;
        };
        shortage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the log should remove as many entries as possible, because room is or was short.
    pub(crate) fn needs_purge(&self) -> bool {
        self.level() > SpaceLevel::Ample || self.0.was_short.load(Ordering::Acquire)
    }

    /// Makes the writes that wait for room fail, because the group is ending. Otherwise, the end of the group would
    /// have to wait for a vote that waits for room.
    pub(crate) fn cancel_waits(&self) {
        self.0.is_ending.store(true, Ordering::Release);
    }

    /// Stores the reason why the reserve of the snapshots is not filled. `None` means that this reserve is filled.
    pub(crate) fn set_snapshot_shortage(&self, shortage: Option<RaftGroupError>) {
        let lacks_reserve = shortage.is_some();
        if lacks_reserve {
            *self.0.snapshot_shortage.lock().unwrap_or_else(PoisonError::into_inner) = shortage;
        }
        self.0.lacks_snapshot_reserve.store(lacks_reserve, Ordering::Release);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.0.is_ending.load(Ordering::Acquire)
    }

    /// Must be called when a purge of the log begins.
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

    /// Sets the level, and keeps the error of the previous shortage.
    pub(super) fn set_short_again(&self, level: SpaceLevel) {
        self.0.was_short.store(true, Ordering::Release);
        self.0.level.store(level as u8, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_disk_reserve_for_snapshots_is_reported_with_cause() {
        let room = DiskSpace::default();
        let lacking = RaftGroupError::LacksResource("no file descriptors".to_owned());
        room.set_snapshot_shortage(Some(lacking.clone()));
        assert_eq!((room.level(), room.shortage()), (SpaceLevel::Low, Some(lacking)));
        room.set_snapshot_shortage(None);
        assert_eq!((room.level(), room.shortage()), (SpaceLevel::Ample, None));
    }
}
