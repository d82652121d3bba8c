//! Manages the room that a log can still use on a full disk. This room consists of two parts: the [`DiskReserve`], and
//! the room that the journal's file has claimed before other programs could take it.
//!
//! While the reserve is not filled, commands that make the state larger are refused ([`DiskSpace`]): only deletes,
//! votes and purges are written. After a start, the reserve is filled before the first command, because a node that
//! restarts on a full disk has no claimed room.

use std::time::{Duration, Instant};

use dunlin_journal::{AppendError, DiskError, DiskReserve, Journal};

use super::room::{DiskSpace, SpaceLevel};
use crate::error::RaftGroupError;

pub(super) const FILL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Margin {
    reserve: DiskReserve,
    room: DiskSpace,
    /// Whether free room of the disk was claimed for the journal's file since the disk became nearly full.
    is_claimed: bool,
    /// Time of the last attempt to fill the reserve.
    tried_at: Instant,
}

impl Margin {
    /// Fills the reserve when the log is opened. If the disk has too little room for the reserve, commands that make
    /// the state larger are refused from then on.
    pub(super) fn open(reserve: DiskReserve, room: DiskSpace) -> Result<Margin, DiskError> {
        let mut margin = Margin { reserve, room, is_claimed: false, tried_at: Instant::now() };
        margin.fill()?;
        Ok(margin)
    }

    /// Whether the reserve is filled and the log has room for all writes.
    pub(super) fn is_settled(&self) -> bool {
        !self.reserve.needs_fill() && self.room.log_level() == SpaceLevel::Ample
    }

    /// Tries to fill the reserve, unless it is filled or the last attempt was less than [`FILL_INTERVAL`] ago.
    pub(super) fn fill_if_due(&mut self) -> Result<(), DiskError> {
        if self.is_settled() || self.tried_at.elapsed() < FILL_INTERVAL {
            return Ok(());
        }
        self.tried_at = Instant::now();
        self.fill()
    }

    fn fill(&mut self) -> Result<(), DiskError> {
        match self.reserve.fill() {
            Ok(true) => {
                // A reserve of 0 bytes always counts as filled, so the next write shows whether there is room.
                self.is_claimed = false;
                self.room.set_ample();
            }
            Ok(false) => {
                let why = "the disk has hardly more room than the reserve takes";
                self.report_low(RaftGroupError::NoRoom(why.to_owned()));
            }
            // A later call tries to fill the reserve again.
            Err(error) if error.lacks_resource() => {
                self.report_low(RaftGroupError::LacksResource(error.to_string()));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Turns the reserve into the journal's next file, so that the journal can use the reserved room. Returns `false`
    /// if the reserve was not filled.
    pub(super) fn release_reserve(&mut self, journal: &mut Journal, why: &str) -> Result<bool, AppendError> {
        self.report_low(RaftGroupError::NoRoom(why.to_owned()));
        let is_released = journal.begin_file_in(&mut self.reserve, 0)?;
        if is_released {
            // If the journal's last file has no records, the journal keeps this file, and the reserve's room becomes
            // free. The room must therefore be claimed for the journal.
            self.claim(journal)?;
        }
        Ok(is_released)
    }

    /// Forgets that room was claimed. Must be called when the journal has freed its preallocated room. If room is still
    /// short, the next write claims new room.
    pub(super) fn forget_claim(&mut self) {
        self.is_claimed = false;
    }

    /// Whether the group is ending. Writes then do not wait for room.
    pub(super) fn is_ending(&self) -> bool {
        self.room.is_ending()
    }

    /// Reports that the log has no room for any write, and why.
    pub(super) fn report_out_of_room(&self, why: RaftGroupError) {
        self.room.set_short(SpaceLevel::Out, why);
    }

    pub(super) fn handle_written(&mut self, journal: &mut Journal) -> Result<(), AppendError> {
        match self.room.log_level() {
            SpaceLevel::Ample => return Ok(()),
            SpaceLevel::Low => {}
            SpaceLevel::Out => self.room.set_short_again(SpaceLevel::Low),
        }
        // Right after a start, room cannot be claimed, because the journal has no file yet. The first write creates the
        // file.
        if self.is_claimed { Ok(()) } else { self.claim(journal) }
    }

    fn report_low(&self, why: RaftGroupError) {
        if self.room.log_level() == SpaceLevel::Ample {
            self.room.set_short(SpaceLevel::Low, why);
        }
    }

    /// Claims as much room as possible in the journal's file, up to the size of the reserve, so that other programs
    /// cannot take the room.
    fn claim(&mut self, journal: &mut Journal) -> Result<(), AppendError> {
        self.is_claimed = true;
        match journal.reserve_room(self.reserve.bytes()) {
            Err(error @ (AppendError::Ended(_) | AppendError::Disk(_))) => Err(error),
            _ => Ok(()),
        }
    }
}
