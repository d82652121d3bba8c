//! Measures flocks in which each member sees 30 others at the start. One flock is in three dimensions. Another is in a
//! plane, for the comparison with krABMaga, another simulator, which supports only two dimensions.
//!
//! A flock contracts over time, so that its members see more and more others. All measurements therefore run equally
//! many ticks from the same start.

use anyhow::{Context, Result, bail};
use dunlin::space::behaviour::Flock;
use serde::{Deserialize, Serialize};

use super::handover::{sample, settle_and_check};
use super::movement::MovementPattern;
use super::setting::WorldSetting;
use super::workers::WorldProcesses;
use crate::child::TIMEOUT;
use crate::point::{BenchContext, RunSample};

fn ticks(bench: &BenchContext) -> u64 {
    bench.options.count(100, 5)
}

/// Measures Dunlin in lock-step over several processes. Afterwards compares all entities with those of a run with a
/// single region.
pub fn ours(bench: &BenchContext, setting: WorldSetting) -> Result<RunSample> {
    let mut workers = WorldProcesses::start(bench, setting, std::time::Duration::ZERO)?;
    let reports = workers.run(0, ticks(bench))?;
    settle_and_check(&mut workers)?;
    Ok(sample(&reports).with("lost", 0.0))
}

/// A request to the peer's program, whose source is in `peers/space`.
#[derive(Serialize)]
struct PeerCommand {
    edge: f32,
    seconds: f32,
    ticks: u64,
    sight: f32,
    apart: f32,
    speed_max: f32,
    force_max: f32,
    weights: [f32; 3],
    birds: Vec<[f32; 4]>,
}

/// The response of the peer's program.
#[derive(Deserialize)]
struct PeerReply {
    counted_ns: u64,
    ticks: u64,
    neighbours: f64,
}

/// Measures krABMaga, which runs in one process on one core.
pub fn measure_peer(bench: &BenchContext, setting: WorldSetting) -> Result<RunSample> {
    let MovementPattern::Flock { sight } = setting.movement else {
        bail!("movement {:?} is not of kind flock", setting.movement)
    };
    let program = bench.peers.program("space_peer")?;
    let args = ["flock".to_owned(), "krabmaga".to_owned()];
    let mut child = bench.child.start_program(&program, &args)?;
    let Flock { apart, speed_max, force_max, weights, .. } = Flock::default();
    let bird = |nth| {
        let bird = setting.entity(nth);
        [bird.position[1], bird.position[2], bird.velocity[1], bird.velocity[2]]
    };
    child.write_line(&PeerCommand {
        edge: setting.edge,
        seconds: (setting.tick_ns as f64 / 1e9) as f32,
        ticks: ticks(bench),
        sight,
        apart,
        speed_max,
        force_max,
        weights,
        birds: (0..setting.entities).map(bird).collect(),
    })?;
    let PeerReply { counted_ns, ticks, neighbours } =
        child.read_line(TIMEOUT * 10).context("cannot run krABMaga's flock")?;
    let rate = ticks as f64 * 1e9 / counted_ns.max(1) as f64;
    Ok(RunSample::new().with("ticks_per_s", rate).with("neighbours", neighbours))
}
