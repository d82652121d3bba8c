//! What a world is made of, as whoever began it wrote it down for all who take part.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dunlin::space::behaviour::{Flock, Tracks};
use dunlin::space::{Entity, EntityId, Flights, Host, Moment, Partition, RegionId, Setup, Standby, World};
use dunlin_client::Kv;
use serde_json::{Value, json};

use super::life::{AIRCRAFT, Life};
use crate::outcome::Refusal;

/// Numbers of those that flock; aircraft begin at 0.
const FLOCK_FROM: u64 = 1_000_000;
/// Neighbours that one of the flock has at first.
const NEIGHBOURS: f32 = 30.0;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub name: String,
    pub edge: f32,
    pub regions: u32,
    pub processes: u32,
    pub flock: u64,
    /// A recording of aircraft, which every process opens.
    pub aircraft: Option<PathBuf>,
    pub speed: f64,
    pub tick: Duration,
    pub seed: u64,
    pub standby: bool,
}

/// A world as a process runs it.
pub struct Made {
    pub setup: Setup<3>,
    pub life: Life,
    pub partition: Partition,
    pub spec: Spec,
    flights: Option<Flights>,
}

impl Spec {
    /// Where it is written.
    pub fn key(name: &str) -> Vec<u8> {
        format!("space/{name}/world").into_bytes()
    }

    /// As it is written.
    pub fn text(&self) -> Vec<u8> {
        let Spec { edge, regions, processes, flock, aircraft, speed, seed, standby, .. } = self;
        let tick_us = self.tick.as_micros() as u64;
        let value = json!({
            "version": 1, "edge": edge, "regions": regions, "processes": processes, "flock": flock, "aircraft": aircraft,
            "speed": speed, "tick_us": tick_us, "seed": seed, "standby": standby,
        });
        value.to_string().into_bytes()
    }

    /// The world of this name.
    pub fn read(kv: &Kv, name: &str) -> Result<Spec> {
        let Some(entry) = kv.get(Spec::key(name))? else {
            let all = kv.prefix("space/")?;
            let worlds: Vec<String> = all
                .iter()
                .filter_map(|entry| String::from_utf8(entry.key.clone()).ok())
                .filter_map(|key| Some(key.strip_prefix("space/")?.strip_suffix("/world")?.to_owned()))
                .collect();
            let known = if worlds.is_empty() {
                "there is none".to_owned()
            } else {
                format!("there is {}", worlds.join(", "))
            };
            return Err(Refusal(format!(
                "there is no world {name:?} here: {known} (`dunlin space run` begins one)"
            ))
            .into());
        };
        let value: Value =
            serde_json::from_slice(&entry.value).context("the world's description cannot be read")?;
        Spec::parse(name, &value)
            .with_context(|| format!("the description of world {name:?} was written by another Dunlin"))
    }

    fn parse(name: &str, value: &Value) -> Result<Spec> {
        if value["version"] != 1 {
            bail!("version {} is not known here", value["version"]);
        }
        let number = |field: &str| value[field].as_u64().with_context(|| format!("{field} is missing"));
        let real = |field: &str| value[field].as_f64().with_context(|| format!("{field} is missing"));
        Ok(Spec {
            name: name.to_owned(),
            edge: real("edge")? as f32,
            regions: number("regions")? as u32,
            processes: number("processes")? as u32,
            flock: number("flock")?,
            aircraft: value["aircraft"].as_str().map(PathBuf::from),
            speed: real("speed")?,
            tick: Duration::from_micros(number("tick_us")?),
            seed: number("seed")?,
            standby: value["standby"].as_bool().context("standby is missing")?,
        })
    }

    /// All that a process needs to run it.
    pub fn make(&self) -> Result<Made> {
        let flights = self.aircraft.as_ref().map(|file| {
            let json = std::fs::read(file)
                .with_context(|| format!("cannot read {} (`cargo xtask data` fetches it)", file.display()))?;
            Flights::read(&json, 0).with_context(|| file.display().to_string())
        });
        let flights = flights.transpose()?;
        let world = match &flights {
            Some(flights) => flights.world,
            None => World::cube(self.edge)?,
        };
        let sight = self.sight(&world);
        let mut setup = Setup::new(RegionId(0), world, sight);
        (setup.tick_ns, setup.seed) = (self.tick.as_nanos() as u64, self.seed);
        setup.standby = if self.standby { Standby::Required } else { Standby::None };
        // Entities that stray along a border are not handed to and fro.
        (setup.cooldown_ticks, setup.hysteresis) = (5, 0.0);
        let speed_max = sight;
        let flock =
            Flock { sight, apart: sight / 4.0, speed_max, force_max: speed_max * 2.0, ..Flock::default() };
        let aircraft = flights.as_ref().map_or_else(Tracks::default, |flights| flights.replayed(self.speed));
        let regions: Vec<RegionId> = self.region_ids();
        Ok(Made {
            setup,
            life: Life { flock, aircraft: Arc::new(aircraft) },
            partition: Partition::even(3, &regions),
            spec: self.clone(),
            flights,
        })
    }

    /// All regions.
    pub fn region_ids(&self) -> Vec<RegionId> {
        (1..=self.regions).map(RegionId).collect()
    }

    fn sight(&self, world: &World<3>) -> f32 {
        let volume: f32 = (0..3).map(|axis| world.max()[axis] - world.min()[axis]).product();
        if self.flock == 0 {
            return volume.cbrt() / 50.0;
        }
        let each = volume / self.flock as f32;
        (each * (NEIGHBOURS + 1.0) * 3.0 / (4.0 * std::f32::consts::PI)).cbrt()
    }
}

impl Made {
    /// How many entities there are in all.
    pub fn entities(&self) -> u64 {
        self.spec.flock + self.flights.as_ref().map_or(0, |flights| flights.tracks.len() as u64)
    }

    /// Takes in those who begin in a region.
    pub fn populate(&self, host: &mut Host<3, Life>, region: RegionId) {
        let flying = self.flights.iter().flat_map(|flights| &flights.tracks).map(|(id, track)| {
            let begin = track.at(0.0);
            Entity { kind: AIRCRAFT, velocity: begin.velocity, ..Entity::at(id.0, begin.position) }
        });
        let flocking = (0..self.spec.flock).map(|nth| self.bird(FLOCK_FROM + nth));
        for entity in flying.chain(flocking) {
            if host.owner_of(&entity.position) == region
                && let Err(error) = host.spawn(&entity)
            {
                tracing::warn!("entity {} is not taken in: {error}", entity.id);
            }
        }
    }

    fn bird(&self, id: u64) -> Entity<'static, 3> {
        let world = self.setup.world;
        let moment = Moment { tick: 0, seconds: 0.0, world, seed: self.spec.seed };
        let swing = |which: u64| moment.swing(EntityId(id), which);
        let place = std::array::from_fn(|axis| {
            let (low, high) = (world.min()[axis], world.max()[axis]);
            low + (swing(axis as u64) + 1.0) / 2.0 * (high - low)
        });
        let fast = self.life.flock.speed_max / 2.0;
        Entity {
            velocity: std::array::from_fn(|axis| swing(3 + axis as u64) * fast),
            ..Entity::at(id, place)
        }
    }

    /// The numbers of all entities.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        let flying = self.flights.iter().flat_map(|flights| flights.tracks.keys().map(|id| id.0));
        flying.chain((0..self.spec.flock).map(|nth| FLOCK_FROM + nth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_is_read_as_it_was_written() {
        let spec = Spec {
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
        let value = serde_json::from_slice(&spec.text()).unwrap();
        assert_eq!(Spec::parse("birds", &value).unwrap(), spec);
    }
}
