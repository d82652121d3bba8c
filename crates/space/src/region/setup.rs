//! The settings of a region.

use crate::handover::{HandoverTiming, RegionId, StandbyMode};
use crate::limits::RegionLimits;
use crate::store::Schema;
use crate::world::WorldBox;

/// The settings of a region: its id, and the settings that all regions of a world share.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionSetup<const D: usize> {
    /// Id of the region.
    pub region: RegionId,
    /// The box of space of the world.
    pub world: WorldBox<D>,
    /// Components of entities.
    pub schema: Schema,
    /// Length of a tick, nanoseconds.
    pub tick_ns: u64,
    /// Width of a strip along the region's borders. Entities in this strip are sent to neighbouring regions as ghosts.
    /// In a world of several regions, the width must be at least the behaviour's [sight](crate::Behaviour::sight) and
    /// the `hysteresis`; see [`check_strip`](RegionSetup::check_strip). During the cool-down, an entity may move
    /// further beyond the border than the strip is wide. Such an entity may not see all entities around it.
    pub strip: f32,
    /// Number of ticks from one ghost batch to the next; 1 sends a batch at every tick.
    pub ghosts_every: u32,
    /// Number of ticks after which ghosts become invisible if no new batch arrives.
    pub ghost_ticks_max: u32,
    /// Number of ticks during which an entity is not handed over. They begin when the entity has arrived in the region,
    /// or when another region has refused it.
    pub cooldown_ticks: u32,
    /// Distance beyond the border at which an entity is handed over.
    pub hysteresis: f32,
    /// Number of ticks over which one pass of sorting all rows is spread.
    pub sort_every: u32,
    /// Seed of the behaviours' random numbers.
    pub seed: u64,
    /// Whether a standby is required.
    pub standby: StandbyMode,
    /// Timeouts of handovers.
    pub timing: HandoverTiming,
    /// Limits of the region, such as the maximum number of entities.
    pub limits: RegionLimits,
}

/// The error for a ghost strip along borders that is narrower than the behaviour's sight or the hysteresis.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "the strip along borders is {strip} wide, but must be at least {width_min}, the larger of the behaviour's sight \
     ({sight}) and the hysteresis ({hysteresis}): widen `RegionSetup::strip`"
)]
pub struct GhostStripError {
    /// Width of the strip.
    pub strip: f32,
    /// The smallest valid width.
    pub width_min: f32,
    /// Sight of the behaviour.
    pub sight: f32,
    /// Hysteresis of the setup.
    pub hysteresis: f32,
}

impl<const D: usize> RegionSetup<D> {
    /// Default settings: 50 ticks a second, ghosts at every tick, no cool-down, no hysteresis and no standby.
    pub fn new(region: RegionId, world: WorldBox<D>, strip: f32) -> RegionSetup<D> {
        RegionSetup {
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
            standby: StandbyMode::None,
            timing: HandoverTiming::default(),
            limits: RegionLimits::default(),
        }
    }

    /// Checks that the strip is wide enough for a behaviour with this sight. [`Region::new`](crate::Region::new) and
    /// [`Lockstep::new`](crate::Lockstep::new) do not make this check.
    pub fn check_strip(&self, sight: f32) -> Result<(), GhostStripError> {
        let (strip, hysteresis) = (self.strip, self.hysteresis);
        let width_min = sight.max(hysteresis);
        if strip >= width_min { Ok(()) } else { Err(GhostStripError { strip, width_min, sight, hysteresis }) }
    }

    /// Length of a tick in seconds.
    pub fn seconds(&self) -> f32 {
        (self.tick_ns as f64 / 1e9) as f32
    }
}
