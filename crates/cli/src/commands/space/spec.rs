//! The description of a world, which all processes of the world read.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dunlin::space::behaviour::{Flock, Tracks};
use dunlin::space::{
    Entity, EntityId, Flights, Host, Partition, RegionId, RegionSetup, StandbyMode, TickContext, WorldBox,
};
use dunlin_client::Kv;
use dunlin_server::read_file_up_to;
use dunlin_server::space::{WorldDescription, WorldDescriptionError};
use serde_json::{Value, json};

use super::life::{AIRCRAFT, FlockAndAircraft};
use crate::outcome::CommandRefusal;

/// The id of the first bird. The ids of aircraft begin at 0.
const FIRST_BIRD_ID: u64 = 1_000_000;
/// The largest size of a file of aircraft, in bytes.
const AIRCRAFT_BYTES_MAX: u64 = 1 << 30;
/// A share of the flock's highest speed. Few birds fly slower than this share.
const SLOW_PART: f32 = 1e-3;
/// The average number of neighbours that a bird has when the world begins.
const NEIGHBOURS: f32 = 30.0;

/// The settings of a world. Each process of the world creates the world from these settings.
#[derive(Debug, Clone, PartialEq)]
pub struct WorldSpec {
    pub name: String,
    pub edge: f32,
    pub regions: u32,
    pub processes: u32,
    pub flock: u64,
    /// A recording of aircraft, which every process must be able to open.
    pub aircraft: Option<PathBuf>,
    pub speed: f64,
    pub tick: Duration,
    pub seed: u64,
    pub standby: bool,
}

/// A world's settings, with all data that a process needs to run the world.
pub struct LoadedWorld {
    pub setup: RegionSetup<3>,
    pub life: FlockAndAircraft,
    pub partition: Partition,
    pub spec: WorldSpec,
    flights: Option<Flights>,
}

impl WorldSpec {
    /// Returns the settings as JSON, as they are stored in the world's description.
    fn recipe(&self) -> Value {
        let WorldSpec { edge, regions, processes, flock, aircraft, speed, seed, standby, .. } = self;
        let tick_us = self.tick.as_micros() as u64;
        json!({
            "version": 1, "edge": edge, "regions": regions, "processes": processes, "flock": flock, "aircraft": aircraft,
            "speed": speed, "tick_us": tick_us, "seed": seed, "standby": standby,
            "kinds": {"0": "birds", AIRCRAFT.to_string(): "aircraft"},
        })
    }

    /// Reads the settings from the stored description of the world `name`.
    pub fn read(kv: &Kv, name: &str) -> Result<WorldSpec> {
        let description = describe(kv, name)?;
        if description.recipe.is_null() {
            bail!(CommandRefusal(format!(
                "world {name:?} is run by another program: start another process of that program to join the world"
            )));
        }
        WorldSpec::parse(name, &description.recipe).with_context(|| {
            format!("the description of world {name:?} was written by another version of Dunlin")
        })
    }

    fn parse(name: &str, value: &Value) -> Result<WorldSpec> {
        if value["version"] != 1 {
            bail!("unknown version {} of the world's description", value["version"]);
        }
        let number = |field: &str| value[field].as_u64().with_context(|| format!("field {field} is missing"));
        let real = |field: &str| value[field].as_f64().with_context(|| format!("field {field} is missing"));
        Ok(WorldSpec {
            name: name.to_owned(),
            edge: real("edge")? as f32,
            regions: number("regions")? as u32,
            processes: number("processes")? as u32,
            flock: number("flock")?,
            aircraft: value["aircraft"].as_str().map(PathBuf::from),
            speed: real("speed")?,
            tick: Duration::from_micros(number("tick_us")?),
            seed: number("seed")?,
            standby: value["standby"].as_bool().context("field `standby` is missing")?,
        })
    }

    /// Loads all data that a process needs to run the world.
    pub fn load(&self) -> Result<LoadedWorld> {
        let flights = self.aircraft.as_ref().map(|file| {
            let json = read_file_up_to(file, AIRCRAFT_BYTES_MAX)
                .with_context(|| format!("cannot read {} (`cargo xtask data` fetches it)", file.display()))?;
            Flights::read(&json, 0).with_context(|| file.display().to_string())
        });
        let flights = flights.transpose()?;
        let world = match &flights {
            Some(flights) => flights.world,
            None => WorldBox::cube(self.edge)?,
        };
        let sight = self.sight(&world);
        let mut setup = RegionSetup::new(RegionId(0), world, sight);
        (setup.tick_ns, setup.seed) = (self.tick.as_nanos() as u64, self.seed);
        setup.standby = if self.standby { StandbyMode::Required } else { StandbyMode::None };
        // After a handover, an entity is not handed over again for five ticks, even if it moves along a border.
        (setup.cooldown_ticks, setup.hysteresis) = (5, 0.0);
        let speed_max = sight;
        let flock =
            Flock { sight, apart: sight / 4.0, speed_max, force_max: speed_max * 2.0, ..Flock::default() };
        let aircraft = flights.as_ref().map_or_else(Tracks::default, |flights| flights.playback(self.speed));
        let regions: Vec<RegionId> = self.region_ids();
        Ok(LoadedWorld {
            setup,
            life: FlockAndAircraft { flock, aircraft: Arc::new(aircraft) },
            partition: Partition::even(3, &regions),
            spec: self.clone(),
            flights,
        })
    }

    /// The ids of all regions of the world.
    pub fn region_ids(&self) -> Vec<RegionId> {
        (1..=self.regions).map(RegionId).collect()
    }

    fn sight(&self, world: &WorldBox<3>) -> f32 {
        let volume: f32 = (0..3).map(|axis| world.max()[axis] - world.min()[axis]).product();
        if self.flock == 0 {
            return volume.cbrt() / 50.0;
        }
        let each = volume / self.flock as f32;
        (each * (NEIGHBOURS + 1.0) * 3.0 / (4.0 * std::f32::consts::PI)).cbrt()
    }
}

/// Reads the stored description of the world `name`.
pub fn describe(kv: &Kv, name: &str) -> Result<WorldDescription> {
    WorldDescription::read(kv, name).map_err(|error| match error {
        WorldDescriptionError::Kv(error) => error.into(),
        refused => CommandRefusal(refused.to_string()).into(),
    })
}

impl LoadedWorld {
    /// Returns the description of the world in the form in which a key stores it.
    pub fn description(&self) -> WorldDescription {
        let WorldSpec { processes, standby, .. } = self.spec;
        WorldDescription::of(
            &self.setup,
            &self.spec.region_ids(),
            processes as usize,
            standby,
            self.spec.recipe(),
        )
    }

    /// Returns a warning if the world's coordinates are so large that an f32 cannot represent the movement of slow
    /// entities in one tick.
    pub fn precision_warning(&self) -> Option<String> {
        let far = self
            .setup
            .world
            .max()
            .into_iter()
            .chain(self.setup.world.min())
            .map(f32::abs)
            .fold(0.0, f32::max);
        let slowest = (far.next_up() - far) / self.setup.seconds();
        let limit = self.life.flock.speed_max * SLOW_PART;
        (slowest > limit).then(|| {
            format!(
                "the world is too large for slow entities: adjacent coordinates near {far} are {} units \
                 apart, so entities slower than {slowest} units per second do not move there",
                far.next_up() - far
            )
        })
    }

    /// The number of entities with which the world begins.
    pub fn entities(&self) -> u64 {
        self.spec.flock + self.flights.as_ref().map_or(0, |flights| flights.tracks.len() as u64)
    }

    /// Adds the entities that are in a region when the world begins.
    pub fn populate(&self, host: &mut Host<3, FlockAndAircraft>, region: RegionId) {
        let flying = self.flights.iter().flat_map(|flights| &flights.tracks).map(|(id, track)| {
            let start_state = track.at(0.0);
            Entity {
                kind: AIRCRAFT,
                velocity: start_state.velocity,
                ..Entity::at(id.0, start_state.position)
            }
        });
        let flocking = (0..self.spec.flock).map(|nth| self.bird(FIRST_BIRD_ID + nth));
        for entity in flying.chain(flocking) {
            if host.owner_of(&entity.position) == region
                && let Err(error) = host.spawn(&entity)
            {
                tracing::warn!("entity {} was not spawned: {error}", entity.id);
            }
        }
    }

    fn bird(&self, id: u64) -> Entity<'static, 3> {
        let world = self.setup.world;
        let moment = TickContext { tick: 0, seconds: 0.0, world, seed: self.spec.seed };
        let swing = |which: u64| moment.random_signed(EntityId(id), which);
        let position = std::array::from_fn(|axis| {
            let (low, high) = (world.min()[axis], world.max()[axis]);
            low + (swing(axis as u64) + 1.0) / 2.0 * (high - low)
        });
        let fast = self.life.flock.speed_max / 2.0;
        Entity {
            velocity: std::array::from_fn(|axis| swing(3 + axis as u64) * fast),
            ..Entity::at(id, position)
        }
    }

    /// The ids of the entities with which the world begins.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        let flying = self.flights.iter().flat_map(|flights| flights.tracks.keys().map(|id| id.0));
        flying.chain((0..self.spec.flock).map(|nth| FIRST_BIRD_ID + nth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn world_spec_is_read_back_as_written() {
        let spec = WorldSpec {
            name: "birds".to_owned(),
            edge: 100.0,
            regions: 3,
            processes: 2,
            flock: 500,
            aircraft: Some("data/aircraft.json".into()),
            speed: 10.0,
            tick: Duration::from_millis(20),
            seed: 4,
            standby: true,
        };
        assert_eq!(WorldSpec::parse("birds", &spec.recipe()).unwrap(), spec);
    }
}
