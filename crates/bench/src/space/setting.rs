//! The settings of a measured world: its size, its entities, its regions and its ticks.

use dunlin::space::{
    Entity, EntityId, HandoverLimits, Partition, RegionId, RegionLimits, RegionSetup, StandbyMode,
    TickContext, WorldBox,
};
use serde::{Deserialize, Serialize};

use super::movement::{ACROSS, MovementPattern};

/// Where the entities are at the start. The numbers in the variants are coordinates on the axis that crosses the
/// regions' border.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum InitialPositions {
    /// At random positions between two walls. About half of the entities start in each of the two directions, so that
    /// there are entities on all parts of the path.
    Between(f32, f32),
    /// All at the same position.
    At(f32),
    /// At random positions, with random directions.
    Anywhere,
    /// At random positions in a plane through the middle of the world. The plane crosses the regions' border.
    Plane,
}

/// The settings of a measured world. All processes of the world receive them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorldSetting {
    /// The number of processes. Each of them runs one region.
    pub processes: u32,
    /// How the entities move.
    pub movement: MovementPattern,
    /// Where the entities are at the start.
    pub spread: InitialPositions,
    /// The speed of the entities, in units per second.
    pub speed: f32,
    /// The number of entities in the whole world.
    pub entities: u64,
    /// The length of each edge of the world. The border between two regions is in the middle.
    pub edge: f32,
    /// How far a region sees beyond its border: the region receives ghosts of the entities that are outside the region
    /// and at most this far from the border.
    pub strip: f32,
    /// The duration of a tick in the world's time, in ns.
    pub tick_ns: u64,
    /// The number of ticks from one transfer of ghosts to the next.
    pub ghosts_every: u32,
    /// Whether all processes run their ticks in lock-step.
    pub lockstep: bool,
    /// Whether changes are published to a state topic. Each worker's process contains a node with such a topic.
    pub publish: bool,
    /// Whether each region has a standby in another process, as regions have by default. A tick then waits until the
    /// standby has received the previous tick.
    pub standby: bool,
}

/// The seed of all random numbers.
pub const SEED: u64 = 7;

impl WorldSetting {
    /// Returns settings with two processes. The world and the ticks are those in the benchmark document of Luciferase,
    /// another system.
    pub fn of(movement: MovementPattern, spread: InitialPositions, entities: u64) -> Self {
        Self {
            processes: 2,
            movement,
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

    /// Returns settings in which the entities move back and forth between two walls, and start at random positions
    /// between these walls.
    pub fn between(low: f32, high: f32, entities: u64) -> Self {
        Self::of(MovementPattern::Oscillate { low, high }, InitialPositions::Between(low, high), entities)
    }

    /// Returns the box that the world fills.
    pub fn world(&self) -> WorldBox<3> {
        WorldBox::cube(self.edge).expect("the world's edge length is a number above 0")
    }

    /// Returns the settings of one region of this world.
    pub fn setup(&self, region: RegionId) -> RegionSetup<3> {
        let mut setup = RegionSetup::new(region, self.world(), self.strip);
        (setup.tick_ns, setup.ghosts_every, setup.seed) = (self.tick_ns, self.ghosts_every, SEED);
        let handover = HandoverLimits { batch_max: 1 << 15, ..HandoverLimits::default() };
        setup.standby = if self.standby { StandbyMode::Required } else { StandbyMode::None };
        setup.limits = RegionLimits { handover, ..RegionLimits::default() };
        // These time limits are so long that no handover is aborted on a busy machine.
        setup.timing.prepare_ns = 20_000_000_000;
        setup.timing.resend_ns = 5_000_000_000;
        setup
    }

    /// Returns the number of standbys of each region: 0 or 1.
    pub fn standbys(&self) -> u64 {
        self.standby.into()
    }

    /// Returns how the world is divided into regions. The regions are numbered from 1, and each has an equal part of
    /// the space-filling curve. If there are two regions, they are the two halves of the world.
    pub fn partition(&self) -> Partition {
        Partition::even(3, &(1..=self.processes).map(RegionId).collect::<Vec<_>>())
    }

    /// Returns the entity with number `nth`, as it is at the start.
    pub fn entity(&self, nth: u64) -> Entity<'static, 3> {
        let moment = TickContext { tick: 0, seconds: 0.0, world: self.world(), seed: SEED };
        let unit = |number: u64| (moment.random_signed(EntityId(nth), number) + 1.0) / 2.0;
        let mut position: [f32; 3] = std::array::from_fn(|axis| unit(axis as u64) * self.edge);
        let direction = if moment.random(EntityId(nth), 9) & 1 == 0 { 1.0 } else { -1.0 };
        let mut velocity = [0.0; 3];
        velocity[ACROSS] = self.speed * direction;
        match self.spread {
            InitialPositions::Between(low, high) => {
                position[ACROSS] = low + unit(ACROSS as u64) * (high - low)
            }
            InitialPositions::At(at) => (position[ACROSS], velocity[ACROSS]) = (at, self.speed),
            InitialPositions::Anywhere | InitialPositions::Plane => {
                velocity = std::array::from_fn(|axis| (unit(3 + axis as u64) - 0.5) * 2.0 * self.speed);
            }
        }
        if self.spread == InitialPositions::Plane {
            (position[0], velocity[0]) = (self.edge / 2.0, 0.0);
        }
        // Four of five entities are of kind 1. With [`MovementPattern::Gather`], only these entities move.
        Entity { kind: u32::from(!nth.is_multiple_of(5)), velocity, ..Entity::at(nth, position) }
    }

    /// Returns the number of border crossings per second of all entities, if the entities move back and forth between
    /// two walls; 0 for other movements.
    pub fn offered_per_s(&self) -> f64 {
        match self.movement {
            MovementPattern::Oscillate { low, high } => {
                self.entities as f64 * f64::from(self.speed) / f64::from(high - low)
            }
            _ => 0.0,
        }
    }
}
