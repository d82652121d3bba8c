//! Defines the measurements of suite `space`. Some of them repeat benchmarks in the benchmark document of Luciferase,
//! another system.

use std::time::Duration;

use super::movement::MovementPattern;
use super::setting::{InitialPositions, WorldSetting};
use super::{capacity, crowd, flock, ghosts, handover, index, simultaneous};
use crate::options::BenchOptions;
use crate::params::Params;
use crate::point::{BenchContext, Measurement, MeasurementGroup, RunSample, target};

/// The geometry that Luciferase's document describes: the walls are at 0 and 100, so each entity crosses the border
/// 0.25 times a second.
pub const DESCRIBED: &str = "described";
/// The geometry of Luciferase's program. In the program, entities turn back earlier, as if the walls were at 26 and 74,
/// so each entity crosses the border 0.52 times a second. The document's table counts these crossings.
pub const PROGRAM: &str = "program";
/// The geometry with walls close to the border: each entity crosses the border more than four times a second.
pub const CLOSE: &str = "close";

/// The parameter for the number of standbys of each region. By default, each region of a world has one standby. Cases
/// without this parameter run without standbys, because their results are compared with a single region or with systems
/// that have no standbys.
pub const STANDBYS: &str = "standbys";

/// The numbers of entities in Luciferase's document, and one larger number.
const SCALING: [u64; 11] = [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 200_000];
/// The numbers of entities per region in Luciferase's document, and higher numbers up to a million.
const CAPACITIES: [u64; 5] = [1_000, 5_000, 10_000, 100_000, 1_000_000];
/// The shortest measuring time for the geometries [`DESCRIBED`] and [`PROGRAM`]. In [`DESCRIBED`], an entity takes 8 s
/// from one wall to the other and back.
const LONG: Duration = Duration::from_secs(8);
/// The shortest measuring time for all other measurements.
const SHORT: Duration = Duration::from_secs(2);
const NO_DELAY: Duration = Duration::ZERO;

fn walls(geometry: &str) -> (f32, f32) {
    match geometry {
        DESCRIBED => (0.0, 100.0),
        PROGRAM => (26.0, 74.0),
        _ => (47.0, 53.0),
    }
}

/// Returns the groups of measurements of suite `space`.
pub fn groups(options: &BenchOptions, with_peers: bool) -> Vec<MeasurementGroup> {
    let mut groups = vec![
        document(options),
        scaling(options),
        saturating(options),
        simultaneous_points(options),
        latency(options),
    ];
    groups.extend([capacities(options), cpu(options), buckets(options), ghost_points(options)]);
    groups.push(flock_points(options, with_peers));
    groups.push(vec![crowd_point(options)]);
    groups.push(index_points(options, with_peers));
    groups
}

fn point(
    case: &'static str,
    params: Params,
    measure: impl FnMut(&BenchContext) -> anyhow::Result<RunSample> + 'static,
) -> Measurement {
    Measurement::new(case, target::DUNLIN, params, measure)
}

fn paced(geometry: &'static str, entities: u64, at_least: Duration) -> Measurement {
    let (low, high) = walls(geometry);
    let setting = WorldSetting::between(low, high, entities);
    let params = Params::new().with("entities", entities).with("geometry", geometry).with("nodes", 2_usize);
    point("handover", params, move |bench| handover::paced(bench, setting, NO_DELAY, at_least))
}

/// Returns the measurements of benchmark 1 in Luciferase's benchmark document.
fn document(options: &BenchOptions) -> MeasurementGroup {
    let counts: &[u64] = if options.quick { &[50] } else { &[50, 100, 200] };
    counts.iter().map(|entities| paced(CLOSE, *entities, SHORT)).collect()
}

fn scaling(options: &BenchOptions) -> MeasurementGroup {
    let counts: &[u64] = if options.quick { &SCALING[1..2] } else { &SCALING };
    counts
        .iter()
        .flat_map(|entities| [DESCRIBED, PROGRAM].map(|geometry| paced(geometry, *entities, LONG)))
        .collect()
}

/// Returns the measurements in which every entity crosses the border at every tick: an entity moves one unit per tick,
/// back and forth between two positions that are one unit apart.
fn saturating(options: &BenchOptions) -> MeasurementGroup {
    let counts: &[u64] = if options.quick { &[400] } else { &[2_000, 10_000, 50_000] };
    let of = |entities: u64| {
        let setting = WorldSetting { speed: 50.0, ..WorldSetting::between(49.5, 50.5, entities) };
        let params = Params::new().with("entities", entities).with("nodes", 2_usize);
        point("handover_saturating", params, move |bench| handover::saturating(bench, setting))
    };
    counts.iter().map(|entities| of(*entities)).collect()
}

fn simultaneous_points(options: &BenchOptions) -> MeasurementGroup {
    let counts: &[u64] = if options.quick { &[50] } else { &[50, 100, 1_000, 10_000] };
    let of = |entities: u64| {
        let walls = MovementPattern::Oscillate { low: 0.0, high: 100.0 };
        let tick_ns = 20_000_000;
        let start = simultaneous::start_position(25.0, tick_ns, 50.0);
        let setting = WorldSetting {
            lockstep: false,
            ..WorldSetting::of(walls, InitialPositions::At(start), entities)
        };
        let params = Params::new().with("entities", entities).with("nodes", 2_usize);
        point("concurrent", params, move |bench| simultaneous::measure(bench, setting))
    };
    counts.iter().map(|entities| of(*entities)).collect()
}

/// Returns the measurements that show how long a handover takes in a world with many entities. The world runs without
/// lock-step, which is the default for worlds.
fn latency(options: &BenchOptions) -> MeasurementGroup {
    let entities = options.count(20_000, 200);
    let of = |rtt_ms: u64, standby: bool| {
        let setting =
            WorldSetting { lockstep: false, standby, ..WorldSetting::between(0.0, 100.0, entities) };
        let params = Params::new()
            .with("entities", entities)
            .with("nodes", 2_usize)
            .with("rtt_ms", rtt_ms)
            .with(STANDBYS, setting.standbys());
        let rtt = Duration::from_millis(rtt_ms);
        point("latency", params, move |bench| handover::paced(bench, setting, rtt, SHORT))
    };
    let rtts: &[u64] = if options.quick { &[0, 50] } else { &[0, 1, 50] };
    rtts.iter().map(|rtt_ms| of(*rtt_ms, false)).chain([of(0, true)]).collect()
}

/// Returns the settings of a world with two processes and about `per_region` entities in each. No entity leaves its
/// half of the world. All changes are published.
fn halves(per_region: u64, tick_ns: u64) -> WorldSetting {
    let of = WorldSetting::of(
        MovementPattern::Halves { middle: 50.0 },
        InitialPositions::Anywhere,
        per_region * 2,
    );
    WorldSetting { publish: true, lockstep: false, tick_ns, ..of }
}

fn capacities(options: &BenchOptions) -> MeasurementGroup {
    let counts: &[u64] = if options.quick { &CAPACITIES[..1] } else { &CAPACITIES };
    let of = |entities: u64, standby: bool| {
        let tick_ns = if entities >= 500_000 { 50_000_000 } else { 20_000_000 };
        // The entities start at random positions, so about half of them are in each half of the world.
        let setting = WorldSetting { standby, ..halves(entities, tick_ns) };
        let params = Params::new()
            .with("entities", entities)
            .with("nodes", 2_usize)
            .with("rate", 1_000_000_000 / tick_ns)
            .with(STANDBYS, setting.standbys());
        point("capacity", params, move |bench| capacity::measure(bench, setting, SHORT))
    };
    let mut points: MeasurementGroup =
        counts.iter().flat_map(|entities| [of(*entities, false), of(*entities, true)]).collect();
    if !options.quick {
        points.push(million());
    }
    points
}

/// Returns the measurement of a million entities in two processes, without publication.
fn million() -> Measurement {
    let setting = WorldSetting { publish: false, ..halves(500_000, 50_000_000) };
    let params = Params::new()
        .with("entities", 500_000_u64)
        .with("nodes", 2_usize)
        .with("rate", 20_u64)
        .with("publish", "no")
        .with(STANDBYS, setting.standbys());
    point("capacity", params, move |bench| capacity::measure(bench, setting, SHORT))
}

/// Returns the measurements that show how much processor time a world's process uses. The world has two processes with
/// equal amounts of work.
fn cpu(options: &BenchOptions) -> MeasurementGroup {
    let counts: &[u64] = if options.quick { &[100] } else { &[100, 1_000, 10_000] };
    let of = |entities: u64, standby: bool| {
        let setting = WorldSetting { standby, ..halves(entities, 20_000_000) };
        let params = Params::new()
            .with("entities", entities)
            .with("nodes", 2_usize)
            .with("rate", 50_u64)
            .with(STANDBYS, setting.standbys());
        point("cpu", params, move |bench| capacity::measure(bench, setting, SHORT))
    };
    counts.iter().flat_map(|entities| [of(*entities, false), of(*entities, true)]).collect()
}

/// Returns the measurements that correspond to the buckets of 100 ms in Luciferase's document. A bucket is a tick with
/// movement, handovers, publication and ghosts.
fn buckets(options: &BenchOptions) -> MeasurementGroup {
    [false, true].map(|standby| bucket(options, standby)).into()
}

fn bucket(options: &BenchOptions, standby: bool) -> Measurement {
    let entities = options.count(20_000, 200);
    let setting = WorldSetting {
        tick_ns: 100_000_000,
        publish: true,
        lockstep: false,
        strip: 5.0,
        standby,
        ..WorldSetting::between(0.0, 100.0, entities)
    };
    let params = Params::new()
        .with("entities", entities)
        .with("nodes", 2_usize)
        .with("rate", 10_u64)
        .with(STANDBYS, setting.standbys());
    point("bucket", params, move |bench| capacity::measure(bench, setting, SHORT))
}

fn ghost_points(options: &BenchOptions) -> MeasurementGroup {
    let of = |entities: u64, rtt_ms: u64| {
        let walls = MovementPattern::Halves { middle: 50.0 };
        let spread = InitialPositions::Between(46.0, 54.0);
        let setting = WorldSetting { strip: 6.0, speed: 0.0, ..WorldSetting::of(walls, spread, entities) };
        let params = Params::new().with("entities", entities).with("nodes", 2_usize).with("rtt_ms", rtt_ms);
        // A world with a delay runs without lock-step, because in lock-step every tick would wait for the delay.
        let setting = WorldSetting { lockstep: rtt_ms == 0, ..setting };
        point("ghosts", params, move |bench| ghosts::measure(bench, setting, Duration::from_millis(rtt_ms)))
    };
    if options.quick {
        return vec![of(200, 0), of(200, 50)];
    }
    // All these worlds run 50 ticks a second. The rate of updates with 20,000 entities is the rate in Luciferase's
    // document. The rates with the other numbers of entities are those of Dunlin's goals: 500, 200 and 50 MB/s.
    vec![of(20_000, 0), of(300_000, 0), of(120_000, 1), of(30_000, 50)]
}

/// Returns the measurements of flocks in which each member has 30 neighbours on average at the start. One flock is in
/// three dimensions, and runs with two processes and with one. The other is in a plane, and runs with two processes. If
/// `with_peers` is set, the flock in the plane is also measured with krABMaga.
fn flock_points(options: &BenchOptions, with_peers: bool) -> MeasurementGroup {
    let entities = options.count(100_000, 500);
    let (edge, neighbours) = (100.0_f32, 31.0 / entities as f32);
    // A ball or circle with this radius around an entity holds 30 other entities on average.
    let ball = edge * (neighbours * 3.0 / (4.0 * std::f32::consts::PI)).cbrt();
    let circle = edge * (neighbours / std::f32::consts::PI).sqrt();
    let of = |spread: InitialPositions, sight: f32| {
        let flock = WorldSetting::of(MovementPattern::Flock { sight }, spread, entities);
        WorldSetting { strip: sight, speed: 10.0, edge, ..flock }
    };
    let (space, plane) = (of(InitialPositions::Anywhere, ball), of(InitialPositions::Plane, circle));
    let params = |geometry: &str| Params::new().with("entities", entities).with("geometry", geometry);
    // For comparison, the flock in space also runs in a single process.
    let mut points: MeasurementGroup = [("space", space, 2), ("space", space, 1), ("plane", plane, 2)]
        .into_iter()
        .map(|(geometry, setting, processes)| {
            let setting = WorldSetting { processes, ..setting };
            let params = params(geometry).with("nodes", u64::from(processes));
            point("flock", params, move |bench| flock::ours(bench, setting))
        })
        .collect();
    if with_peers {
        let params = params("plane").with("nodes", 1_usize);
        points.push(Measurement::new("flock", "krabmaga", params, move |bench| {
            flock::measure_peer(bench, plane)
        }));
    }
    points
}

fn crowd_point(options: &BenchOptions) -> Measurement {
    let entities = options.count(20_000, 400);
    let walks = MovementPattern::Gather { at: [12.0, 12.0, 12.0], radius: 10.0 };
    let setting = WorldSetting {
        processes: 4,
        tick_ns: 50_000_000,
        ..WorldSetting::of(walks, InitialPositions::Anywhere, entities)
    };
    let params = Params::new().with("entities", entities).with("nodes", 4_usize).with("rate", 20_u64);
    point("crowd", params, move |bench| crowd::measure(bench, setting))
}

fn index_points(options: &BenchOptions, with_peers: bool) -> MeasurementGroup {
    let entities = options.count(100_000, 1_000);
    let setting =
        WorldSetting::of(MovementPattern::Halves { middle: 50.0 }, InitialPositions::Anywhere, entities);
    let params = |name: &str| Params::new().with("index", name).with("entities", entities);
    let mut points: MeasurementGroup = ["grid", "octree", "tetree"]
        .into_iter()
        .map(|name| point("index", params(name), move |bench| index::ours(bench, name, setting)))
        .collect();
    if with_peers {
        for name in ["rstar", "kiddo"] {
            points.push(Measurement::new(
                "index",
                name,
                Params::new().with("entities", entities),
                move |bench| index::measure_peer(bench, name, setting),
            ));
        }
    }
    points
}
