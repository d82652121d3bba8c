//! Measures spatial indexes. At every tick, 100,000 points move, and the ten nearest neighbours of each point are
//! searched.
//!
//! For some points, the found neighbours are compared with those that a scan over all points finds.

use anyhow::{Result, ensure};
use dunlin::space::{Grid, LinearScan, NearItem, Octree, SpatialIndex, TetrahedralTree, WorldBox};
use serde::{Deserialize, Serialize};

use super::setting::WorldSetting;
use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::point::{BenchContext, RunSample};

/// The number of nearest neighbours that are searched for each point.
const NEAREST: usize = 10;
/// The number of points for which the found neighbours are checked.
const COMPARED: usize = 50;

/// Measures one of Dunlin's indexes: `octree`, `tetree` or the grid.
pub fn ours(bench: &BenchContext, name: &str, setting: WorldSetting) -> Result<RunSample> {
    let world = setting.world();
    match name {
        "octree" => measure(bench, Octree::new(world), setting),
        "tetree" => measure(bench, TetrahedralTree::new(world), setting),
        _ => {
            // With this edge, a cell of the grid holds about four points.
            let edge = setting.edge / (setting.entities as f32 / 4.0).cbrt().max(1.0);
            measure(bench, Grid::new(world, edge), setting)
        }
    }
}

fn measure(
    bench: &BenchContext,
    mut index: impl SpatialIndex<3>,
    setting: WorldSetting,
) -> Result<RunSample> {
    let mut points = columns(&setting);
    let (mut found, mut ticks, mut recall) = (Vec::new(), 0_u32, 1.0_f64);
    let mut counted_ns = 0;
    while counted_ns < bench.options.time.as_nanos() as u64 || ticks < 2 {
        advance(&mut points, &setting.world(), ticks);
        let start_ns = monotonic_ns();
        index.rebuild(std::array::from_fn(|axis| &points[axis][..]));
        index.nearest_of_each(NEAREST, &mut found);
        counted_ns += monotonic_ns() - start_ns;
        ensure!(
            found.len() == points[0].len() * NEAREST,
            "the query found {} entities, expected {NEAREST} for each entity",
            found.len()
        );
        recall = recall.min(compare(&points, &found));
        ticks += 1;
    }
    ensure!(recall == 1.0, "the index found only {recall} of the nearest entities, expected all");
    Ok(sample(counted_ns, ticks, setting.entities, recall))
}

fn sample(counted_ns: u64, ticks: u32, entities: u64, recall: f64) -> RunSample {
    let tick_ns = counted_ns as f64 / f64::from(ticks.max(1));
    RunSample::new()
        .with("tick_ns", tick_ns)
        .with("queries_per_s", entities as f64 * 1e9 / tick_ns)
        .with("recall", recall)
}

/// Returns the coordinates of all points at the start, with one list for each axis.
fn columns(setting: &WorldSetting) -> [Vec<f32>; 3] {
    let mut columns: [Vec<f32>; 3] = Default::default();
    for nth in 0..setting.entities {
        let at = setting.entity(nth).position;
        columns.iter_mut().zip(at).for_each(|(column, along)| column.push(along));
    }
    columns
}

/// Moves all points a little. Every measured index gets the same movements. A point that would leave the world moves in
/// the opposite direction instead.
fn advance(points: &mut [Vec<f32>; 3], world: &WorldBox<3>, tick: u32) {
    for (axis, column) in points.iter_mut().enumerate() {
        let edge = world.max()[axis];
        for (nth, along) in column.iter_mut().enumerate() {
            let step = ((nth * 7 + axis * 3 + tick as usize) % 11) as f32 * 0.02 - 0.1;
            let moved = *along + step;
            *along = if moved < 0.0 || moved > edge { *along - step } else { moved };
        }
    }
}

/// Returns the share of the true nearest neighbours that the index found. Only about [`COMPARED`] of the points are
/// checked.
fn compare(points: &[Vec<f32>; 3], found: &[NearItem]) -> f64 {
    let mut scan = LinearScan::<3>::new();
    scan.rebuild(std::array::from_fn(|axis| &points[axis][..]));
    let (mut exact, mut correct) = (Vec::new(), 0);
    let every = (points[0].len() / COMPARED).max(1);
    let checked: Vec<usize> = (0..points[0].len()).step_by(every).collect();
    for item in &checked {
        let at = std::array::from_fn(|axis| points[axis][*item]);
        scan.nearest(&at, NEAREST + 1, &mut exact);
        let own = &found[item * NEAREST..(item + 1) * NEAREST];
        let expected: Vec<f32> =
            exact.iter().filter(|near| near.item as usize != *item).map(|near| near.distance_sq).collect();
        correct += own.iter().zip(expected).filter(|(near, expected)| near.distance_sq <= *expected).count();
    }
    correct as f64 / (checked.len() * NEAREST) as f64
}

/// The result that the peer's program prints.
#[derive(Serialize, Deserialize)]
struct PeerReport {
    counted_ns: u64,
    ticks: u32,
    recall: f64,
}

/// Measures the spatial index of rstar or kiddo, two other libraries, on the same points. The peer's program is in
/// `peers/space`.
pub fn measure_peer(bench: &BenchContext, name: &'static str, setting: WorldSetting) -> Result<RunSample> {
    let program = bench.peers.program("space_peer")?;
    let args = [
        "index".to_owned(),
        name.to_owned(),
        setting.entities.to_string(),
        bench.options.time.as_millis().to_string(),
    ];
    let mut child = bench.child.start_program(&program, &args)?;
    // The program reads the points from standard input, with three coordinates for each point.
    let points = columns(&setting);
    let rows: Vec<[f32; 3]> =
        (0..points[0].len()).map(|row| std::array::from_fn(|axis| points[axis][row])).collect();
    child.write_line(&rows)?;
    let PeerReport { counted_ns, ticks, recall } = child.read_line(TIMEOUT)?;
    ensure!(recall == 1.0, "{name} finds only {recall} of the nearest entities");
    Ok(sample(counted_ns, ticks, setting.entities, recall))
}
