//! Measures a flash crowd: four of five entities walk into one region, and the space-filling curve is divided again by
//! the measured loads.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dunlin::space::{Partition, RegionId, RegionLoad};

use super::handover::{ended, longest};
use super::node::{RegionWeight, WorldCommand};
use super::setting::WorldSetting;
use super::workers::WorldProcesses;
use crate::point::{Bench, RunSample};

/// The highest load, as a multiple of the mean, at which the regions are not divided again.
const TOLERANCE: f64 = 1.1;
/// The highest load, as a multiple of the mean, at which the regions count as balanced.
const EVEN: f64 = 1.15;
/// The number of ticks between two checks of the loads, as in automatic balancing.
const LOOK_TICKS: u64 = 1;

/// Measures the worst imbalance of loads, and the number of ticks until the loads are balanced.
pub fn measure(bench: &Bench, setting: WorldSetting) -> Result<RunSample> {
    let mut workers = WorldProcesses::start(bench, setting, Duration::ZERO)?;
    let mut partition = setting.partition();
    let ticks = bench.options.count(240, 40);
    let (mut since_uneven, mut most_uneven, mut cuts, mut worst_ns, mut handed) = (0, 0, 0, None, 0);
    let mut last = 1.0;
    for _ in 0..ticks / LOOK_TICKS {
        let seen = workers.run(setting.tick_ns, LOOK_TICKS)?;
        worst_ns = worst_ns.max(longest(&seen, |seen| seen.tick_ns[3]));
        handed += seen.iter().map(|seen| seen.departed).sum::<u64>();
        let weights: Vec<RegionWeight> = workers.all(&WorldCommand::RegionLoad)?;
        let loads: Vec<RegionLoad> = weights.into_iter().map(RegionLoad::from).collect();
        last = unevenness(&loads);
        since_uneven = if last > EVEN { since_uneven + LOOK_TICKS } else { 0 };
        most_uneven = most_uneven.max(since_uneven);
        if let Some(next) = partition.rebalance(&loads, TOLERANCE) {
            cut(&mut workers, &next)?;
            partition = next;
            cuts += 1;
        }
    }
    ensure!(cuts > 0, "no rebalance changed the partition");
    ended(&mut workers)?;
    Ok(RunSample::new()
        .with("uneven_ticks", most_uneven as f64)
        .with("unevenness", last)
        .with("cuts", f64::from(cuts))
        .with("handovers", handed as f64)
        .with_time("max_ns", worst_ns)
        .with("lost", 0.0))
}

/// Returns the highest load as a multiple of the mean.
fn unevenness(loads: &[RegionLoad]) -> f64 {
    let mean = loads.iter().map(|load| load.amount).sum::<f64>() / loads.len().max(1) as f64;
    loads.iter().fold(0.0, |most: f64, load| most.max(load.amount)) / mean.max(1.0)
}

fn cut(workers: &mut WorldProcesses, partition: &Partition) -> Result<()> {
    let cuts = partition.regions().iter().map(|(first, RegionId(region))| (*first, *region)).collect();
    let done: Vec<bool> = workers.all(&WorldCommand::Cut(cuts))?;
    done.iter().all(|done| *done).then_some(()).context("a worker did not confirm the rebalanced partition")
}
