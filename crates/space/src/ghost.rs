//! Ghosts: a neighbour's entities near the border, as one sees them without owning them.
//!
//! A region tells each neighbour, at every tick or every few, all who are within the strip along the border; whoever is not
//! told of any more is gone. In between, and when a message is lost, ghosts are taken to fly on straight. One whose velocity changes
//! by at most `a` a second is then off by at most `a · t² / 2` after `t` seconds (and by what rounding makes of it); after
//! [`Setup::ghost_ticks_max`](crate::Setup) ticks it is seen by nobody.
//!
//! Invariants: of one neighbour the batch of the highest (epoch, number) counts, and one of an older epoch than the neighbour's owner
//! is known to have never does. Who is both a ghost and one's own is one's own.

mod batch;
mod strip;

use std::collections::BTreeMap;

use crate::entity::EntityId;
use crate::handover::RegionId;
use crate::layout::DecodeError;
use crate::world::Point;

pub use batch::GhostBatch;
pub(crate) use strip::Strip;

/// One that is seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ghost<const D: usize> {
    /// Its number.
    pub id: EntityId,
    /// Its kind.
    pub kind: u32,
    /// Where it is taken to be.
    pub position: Point<D>,
    /// How fast it was.
    pub velocity: Point<D>,
}

/// The newest batch of a neighbour, and the tick of one's own after which it came: neighbours that do not keep step count theirs otherwise.
#[derive(Debug, Clone)]
struct Heard<const D: usize> {
    batch: GhostBatch<D>,
    tick: u64,
}

/// What is known of all neighbours.
#[derive(Debug, Clone)]
pub struct Ghosts<const D: usize> {
    ghosts_max: u32,
    neighbours: BTreeMap<RegionId, Heard<D>>,
    /// The memory of the batch before the newest, for the next.
    spare: Option<GhostBatch<D>>,
    stale: u64,
    beyond: u64,
}

impl<const D: usize> Ghosts<D> {
    pub(crate) fn new(ghosts_max: u32) -> Ghosts<D> {
        Ghosts { ghosts_max, neighbours: BTreeMap::new(), spare: None, stale: 0, beyond: 0 }
    }

    /// Reads a batch, to be [taken in](Ghosts::take).
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<GhostBatch<D>, DecodeError> {
        let mut batch = self.spare.take().unwrap_or_else(|| GhostBatch::new(RegionId(0), 0, 0, 0));
        batch.read(bytes)?;
        Ok(batch)
    }

    /// Takes a batch in that comes after this tick of one's own, if it is newer than what is known, and its owner is not known to be replaced.
    pub(crate) fn take(&mut self, mut batch: GhostBatch<D>, epoch_known: u64, tick: u64) -> bool {
        let newer = self.neighbours.get(&batch.from).is_none_or(|held| batch.stamp() > held.batch.stamp());
        if !newer || batch.epoch < epoch_known {
            self.stale += 1;
            self.spare = Some(batch);
            return false;
        }
        let max = self.ghosts_max as usize;
        self.beyond += batch.len().saturating_sub(max) as u64;
        batch.truncate(max);
        let before = self.neighbours.insert(batch.from, Heard { batch, tick });
        self.spare = before.map(|heard| heard.batch);
        true
    }

    /// Until which tick a neighbour is known.
    pub fn known_through(&self, region: RegionId) -> Option<u64> {
        self.neighbours.get(&region).map(|heard| heard.batch.tick)
    }

    /// Batches that were not newer than what was known.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Ghosts that found no room.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Visits all as they are taken to be after a tick of one's own; those not heard of for longer than `ticks_max` are left out. Who is
    /// told of by two neighbours is as the newer says.
    pub fn each(&self, tick: u64, seconds: f32, ticks_max: u64, mut visit: impl FnMut(&Ghost<D>)) {
        let fresh = |heard: &&Heard<D>| heard.tick + ticks_max >= tick;
        let mut batches: Vec<&Heard<D>> = self.neighbours.values().filter(fresh).collect();
        batches.sort_by_key(|heard| std::cmp::Reverse(heard.tick));
        let mixed = batches.windows(2).any(|pair| pair[0].tick != pair[1].tick);
        let mut seen = std::collections::HashSet::new();
        for heard in batches {
            let ticks = tick.saturating_sub(heard.tick);
            for ghost in heard.batch.ghosts(ticks as f32 * seconds) {
                // In lock-step nobody is told of twice.
                if !mixed || seen.insert(ghost.id) {
                    visit(&ghost);
                }
            }
        }
    }

    /// Bytes of memory it holds.
    pub fn bytes(&self) -> usize {
        let batches = self.neighbours.values().map(|heard| &heard.batch).chain(&self.spare);
        batches.map(|batch| batch.len() * (12 + 8 * D)).sum()
    }
}
