//! How a region is set up.

use crate::handover::{RegionId, Standby, Timing};
use crate::limits::Limits;
use crate::store::Schema;
use crate::world::World;

/// What all regions of a world agree on, and which one this is.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup<const D: usize> {
    /// Which.
    pub region: RegionId,
    /// The world.
    pub world: World<D>,
    /// What entities are made of.
    pub schema: Schema,
    /// How long a tick is, nanoseconds.
    pub tick_ns: u64,
    /// How far beyond its border a region's entities are seen by others: as far as anybody sees, and as far as anybody
    /// may stray before being handed over.
    pub strip: f32,
    /// Ghosts are sent every so many ticks; 1 for lock-step.
    pub ghosts_every: u32,
    /// Ghosts older than so many ticks are seen by nobody.
    pub ghost_ticks_max: u32,
    /// An entity that came, or was refused, is not handed over for so many ticks.
    pub cooldown_ticks: u32,
    /// How far beyond the border an entity is when it is handed over.
    pub hysteresis: f32,
    /// Rows are brought into the curve's order every so many ticks.
    pub sort_every: u32,
    /// What chance follows from.
    pub seed: u64,
    /// Whether somebody stands by.
    pub standby: Standby,
    /// How long hand-overs may take.
    pub timing: Timing,
    /// What it holds at most.
    pub limits: Limits,
}

impl<const D: usize> Setup<D> {
    /// 50 ticks a second, in lock-step, without cool-down, hysteresis or standby.
    pub fn new(region: RegionId, world: World<D>, strip: f32) -> Setup<D> {
        Setup {
            region,
            world,
            schema: Schema::default(),
            tick_ns: 20_000_000,
            strip,
            ghosts_every: 1,
            ghost_ticks_max: 25,
            cooldown_ticks: 0,
            hysteresis: 0.0,
            sort_every: 32,
            seed: 0,
            standby: Standby::None,
            timing: Timing::default(),
            limits: Limits::default(),
        }
    }

    /// A tick in seconds.
    pub fn seconds(&self) -> f32 {
        (self.tick_ns as f64 / 1e9) as f32
    }
}
