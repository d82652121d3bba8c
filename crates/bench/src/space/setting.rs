//! Settings of a measurement: the world, its entities, partition and ticks.

use dunlin::space::{
    Entity, EntityId, HandoverLimits, Partition, RegionId, RegionLimits, RegionSetup, StandbyMode,
    TickContext, WorldBox,
};
use serde::{Deserialize, Serialize};

use super::conduct::{ACROSS, MovementPattern};

/// The distribution of a world's entities at the start, along the axis that crosses the regions' border.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum InitialPositions {
    /// Anywhere between two positions, in both directions: all phases of a path between walls.
    Between(f32, f32),
    /// All at one position.
    At(f32),
    /// Anywhere, in all directions.
    Anywhere,
    /// Anywhere in a plane through the middle that crosses the border.
    Plane,
}

/// The settings of a measured world, which all of its processes receive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorldSetting {
    /// Number of processes, with a region each.
    pub processes: u32,
    /// How entities move.
    pub conduct: MovementPattern,
    /// Initial positions.
    pub spread: InitialPositions,
    /// Speed, units a second.
    pub speed: f32,
    /// Number of entities in all.
    pub entities: u64,
    /// Edge of the world; the border between two regions is at its middle.
    pub edge: f32,
    /// Sight of neighbours beyond a border.
    pub strip: f32,
    /// Length of a tick in the world, ns.
    pub tick_ns: u64,
    /// Ticks between two ghost batches.
    pub ghosts_every: u32,
    /// Whether ticks are in lock-step.
    pub lockstep: bool,
    /// Whether changes are published to a state topic of a node in the worker.
    pub publish: bool,
    /// Whether each region has a standby in another process, as users' worlds have by default. A tick waits
    /// until the standby knows the tick before.
    pub standby: bool,
}

/// Seed of random numbers.
pub const SEED: u64 = 7;

impl WorldSetting {
    /// Two processes, with the Luciferase document's world and ticks.
    pub fn of(conduct: MovementPattern, spread: InitialPositions, entities: u64) -> Self {
        Self {
            processes: 2,
            conduct,
            spread,
            speed: 25.0,
            entities,
            edge: 100.0,
            strip: 0.5,
            tick_ns: 20_000_000,
            ghosts_every: 1,
            lockstep: true,
            publish: false,
            standby: false,
        }
    }

    /// Settings in which entities move to and fro between two walls, and start anywhere between them.
    pub fn between(low: f32, high: f32, entities: u64) -> Self {
        Self::of(MovementPattern::Oscillate { low, high }, InitialPositions::Between(low, high), entities)
    }

    /// The world.
    pub fn world(&self) -> WorldBox<3> {
        WorldBox::cube(self.edge).expect("the world's edge length is a number above 0")
    }

    /// The setup of a region.
    pub fn setup(&self, region: RegionId) -> RegionSetup<3> {
        let mut setup = RegionSetup::new(region, self.world(), self.strip);
        (setup.tick_ns, setup.ghosts_every, setup.seed) = (self.tick_ns, self.ghosts_every, SEED);
        let handover = HandoverLimits { batch_max: 1 << 15, ..HandoverLimits::default() };
        setup.standby = if self.standby { StandbyMode::Required } else { StandbyMode::None };
        setup.limits = RegionLimits { handover, ..RegionLimits::default() };
        // Long times, so that a busy machine aborts no handover.
        setup.timing.prepare_ns = 20_000_000_000;
        setup.timing.resend_ns = 5_000_000_000;
        setup
    }

    /// Standbys of each region.
    pub fn standbys(&self) -> u64 {
        self.standby.into()
    }

    /// The regions, numbered from 1, and their stretches: halves if there are two.
    pub fn partition(&self) -> Partition {
        Partition::even(3, &(1..=self.processes).map(RegionId).collect::<Vec<_>>())
    }

    /// The nth entity.
    pub fn entity(&self, nth: u64) -> Entity<'static, 3> {
        let moment = TickContext { tick: 0, seconds: 0.0, world: self.world(), seed: SEED };
        let unit = |which: u64| (moment.swing(EntityId(nth), which) + 1.0) / 2.0;
        let mut place: [f32; 3] = std::array::from_fn(|axis| unit(axis as u64) * self.edge);
        let direction = if moment.chance(EntityId(nth), 9) & 1 == 0 { 1.0 } else { -1.0 };
        let mut velocity = [0.0; 3];
        velocity[ACROSS] = self.speed * direction;
        match self.spread {
            InitialPositions::Between(low, high) => place[ACROSS] = low + unit(ACROSS as u64) * (high - low),
            InitialPositions::At(at) => (place[ACROSS], velocity[ACROSS]) = (at, self.speed),
            InitialPositions::Anywhere | InitialPositions::Plane => {
                velocity = std::array::from_fn(|axis| (unit(3 + axis as u64) - 0.5) * 2.0 * self.speed);
            }
        }
        if self.spread == InitialPositions::Plane {
            (place[0], velocity[0]) = (self.edge / 2.0, 0.0);
        }
        // Four of five entities are of kind 1, which walks to the position if the movement has one.
        Entity { kind: u32::from(!nth.is_multiple_of(5)), velocity, ..Entity::at(nth, place) }
    }

    /// Crossings of the border a second, for entities that move to and fro.
    pub fn offered_per_s(&self) -> f64 {
        match self.conduct {
            MovementPattern::Oscillate { low, high } => {
                self.entities as f64 * f64::from(self.speed) / f64::from(high - low)
            }
            _ => 0.0,
        }
    }
}
