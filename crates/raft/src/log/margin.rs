//! What room the log has left for when its disk is full: the [`Reserve`], and what of it was claimed for the journal.
//!
//! As long as the reserve is not filled, growth is refused ([`Room`]): what is written then are deletes, votes and word of what
//! is needless. So it is seen to before anything is taken, at the start too: a node that was started again on a full disk has
//! none, and the room that its journal had claimed is free, for whoever comes first.

use std::time::{Duration, Instant};

use dunlin_journal::{AppendError, DiskError, Journal, Reserve};

use super::room::{Level, Room};

/// How often it is looked whether there is room for the reserve.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug)]
pub(super) struct Margin {
    reserve: Reserve,
    room: Room,
    /// The journal has what there was of the reserve's room.
    is_claimed: bool,
    /// When it was looked last whether there is room for the reserve.
    looked: Instant,
}

impl Margin {
    /// Fills the reserve; where there is no room for it growth is refused from the first command on.
    pub(super) fn open(reserve: Reserve, room: Room) -> Result<Margin, DiskError> {
        let mut margin = Margin { reserve, room, is_claimed: false, looked: Instant::now() };
        margin.fill()?;
        Ok(margin)
    }

    /// Nothing is to be seen to.
    pub(super) fn is_settled(&self) -> bool {
        !self.reserve.is_lacking() && self.room.level() == Level::Ample
    }

    /// Fills the reserve if there is room for it again; then there is room for everything.
    pub(super) fn look(&mut self) -> Result<(), DiskError> {
        if self.is_settled() || self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        self.fill()
    }

    fn fill(&mut self) -> Result<(), DiskError> {
        if self.reserve.fill()? {
            // One of 0 bytes is always there: then the next write says whether there is room.
            self.is_claimed = false;
            self.room.is_ample();
        } else {
            self.is_low("the disk has hardly more room than the reserve takes");
        }
        Ok(())
    }

    /// Gives up the reserve and keeps its room for the journal; whether there was any.
    pub(super) fn take(&mut self, journal: &mut Journal, why: &str) -> Result<bool, AppendError> {
        self.is_low(why);
        // What cannot be removed is no room.
        let there = self.reserve.release().unwrap_or(false);
        if there {
            self.claim(journal)?;
        }
        Ok(there)
    }

    /// Nothing finds room any more.
    pub(super) fn is_out(&self, why: String) {
        self.room.is_short(Level::Out, why);
    }

    /// Something was written: there is some room.
    pub(super) fn was_written(&mut self, journal: &mut Journal) -> Result<(), AppendError> {
        match self.room.level() {
            Level::Ample => return Ok(()),
            Level::Low => {}
            Level::Out => self.room.is_short(Level::Low, self.room.lacking().unwrap_or_default()),
        }
        // At a start there is no file to claim it for until something was written.
        if self.is_claimed { Ok(()) } else { self.claim(journal) }
    }

    fn is_low(&self, why: &str) {
        if self.room.level() == Level::Ample {
            self.room.is_short(Level::Low, why.to_owned());
        }
    }

    /// Room that others on this disk do not get. What of it is there is kept, though it is not all.
    fn claim(&mut self, journal: &mut Journal) -> Result<(), AppendError> {
        self.is_claimed = true;
        match journal.room(self.reserve.bytes()) {
            Err(error @ (AppendError::Ended(_) | AppendError::Disk(_))) => Err(error),
            _ => Ok(()),
        }
    }
}
