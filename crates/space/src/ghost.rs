//! Ghosts: read-only copies of neighbours' entities near the border.
//!
//! Once in every [`ghosts_every`](crate::RegionSetup::ghosts_every) ticks, a region sends each neighbour a batch: all
//! entities that the region has within the strip along the common border. An entity that is missing from a batch has
//! left the strip. Until the next batch arrives, ghosts move straight on, even if a batch is lost. If an entity's
//! velocity changes by at most `a` a second, the error of its ghost's position is at most `a · t² / 2` after `t`
//! seconds, plus rounding. If no batch has arrived from a neighbour for more than
//! [`ghost_ticks_max`](crate::RegionSetup::ghost_ticks_max) ticks, the ghosts of this neighbour are invisible.
//!
//! Invariants: of each neighbour's batches, only the one with the highest epoch and number is used. A batch is ignored
//! if its epoch is lower than the neighbour's latest epoch that the region knows. A ghost is ignored if the region
//! itself has an entity with the ghost's id.

mod batch;
mod strip;

use std::collections::BTreeMap;

use crate::entity::EntityId;
use crate::handover::RegionId;
use crate::layout::SpaceDecodeError;
use crate::world::Point;

pub use batch::GhostBatch;
pub(crate) use strip::BorderStrip;

/// A read-only copy of an entity that a neighbouring region owns, near the border.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ghost<const D: usize> {
    /// Id of the entity.
    pub id: EntityId,
    /// The entity's kind.
    pub kind: u32,
    /// Extrapolated position.
    pub position: Point<D>,
    /// Velocity at the tick in which the neighbour made the batch.
    pub velocity: Point<D>,
}

/// The newest batch of a neighbour. `tick` is the receiving region's own tick after which the batch arrived, not the
/// neighbour's tick.
#[derive(Debug, Clone)]
struct NeighbourBatch<const D: usize> {
    batch: GhostBatch<D>,
    tick: u64,
}

/// The ghosts of a region: copies of its neighbours' entities near the borders.
#[derive(Debug, Clone)]
pub struct Ghosts<const D: usize> {
    ghosts_max: u32,
    neighbours: BTreeMap<RegionId, NeighbourBatch<D>>,
    /// Memory of an older batch, for reuse.
    spare: Option<GhostBatch<D>>,
    /// Number of batches that were ignored because they were not newer than the stored batch, or because a former owner
    /// of the neighbouring region had sent them.
    stale: u64,
    /// Number of ghosts that were dropped because of the limit `ghosts_max`.
    dropped: u64,
}

impl<const D: usize> Ghosts<D> {
    pub(crate) fn new(ghosts_max: u32) -> Ghosts<D> {
        Ghosts { ghosts_max, neighbours: BTreeMap::new(), spare: None, stale: 0, dropped: 0 }
    }

    /// Decodes a batch, so that [`Ghosts::store`] can store it.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<GhostBatch<D>, SpaceDecodeError> {
        let mut batch = self.spare.take().unwrap_or_else(|| GhostBatch::new(RegionId(0), 0, 0, 0));
        batch.read(bytes)?;
        Ok(batch)
    }

    /// Stores a batch that arrived after `tick`, the region's own tick. `epoch_known` is the latest epoch of the
    /// neighbour that the region knows. Ignores the batch and returns `false` if the batch is not newer than the stored
    /// one, or if its epoch is lower than `epoch_known`.
    pub(crate) fn store(&mut self, mut batch: GhostBatch<D>, epoch_known: u64, tick: u64) -> bool {
        let newer = self.neighbours.get(&batch.from).is_none_or(|known| batch.stamp() > known.batch.stamp());
        if !newer || batch.epoch < epoch_known {
            self.stale += 1;
            self.spare = Some(batch);
            return false;
        }
        let max = self.ghosts_max as usize;
        self.dropped += batch.len().saturating_sub(max) as u64;
        batch.truncate(max);
        let before = self.neighbours.insert(batch.from, NeighbourBatch { batch, tick });
        self.spare = before.map(|stored| stored.batch);
        true
    }

    /// The neighbour's own tick after which it made its newest batch; `None` if the neighbour has sent no batch.
    pub fn last_known_tick(&self, region: RegionId) -> Option<u64> {
        self.neighbours.get(&region).map(|stored| stored.batch.tick)
    }

    /// Number of batches that were ignored because they were not newer than the stored batch, or because a former owner
    /// of the neighbouring region had sent them.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Number of ghosts that were dropped because of the limit `ghosts_max`.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Visits all ghosts, with their positions extrapolated to this region's tick `tick`. A tick lasts `seconds`. Skips
    /// neighbours that have sent no batch for more than `ticks_max` ticks. If two neighbours' batches contain the same
    /// entity, the batch that arrived later counts.
    pub fn for_each(&self, tick: u64, seconds: f32, ticks_max: u64, mut visit: impl FnMut(&Ghost<D>)) {
        let fresh = |stored: &&NeighbourBatch<D>| stored.tick + ticks_max >= tick;
        let mut batches: Vec<&NeighbourBatch<D>> = self.neighbours.values().filter(fresh).collect();
        batches.sort_by_key(|stored| std::cmp::Reverse(stored.tick));
        let mixed = batches.windows(2).any(|pair| pair[0].tick != pair[1].tick);
        let mut seen = std::collections::HashSet::new();
        for stored in batches {
            let ticks = tick.saturating_sub(stored.tick);
            for ghost in stored.batch.ghosts(ticks as f32 * seconds) {
                // An entity can be in two batches only if the batches arrived after different ticks.
                if !mixed || seen.insert(ghost.id) {
                    visit(&ghost);
                }
            }
        }
    }

    /// Memory in use, bytes.
    pub fn bytes(&self) -> usize {
        let batches = self.neighbours.values().map(|stored| &stored.batch).chain(&self.spare);
        batches.map(|batch| batch.len() * (12 + 8 * D)).sum()
    }
}
