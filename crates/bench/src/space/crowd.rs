//! Measures a flash crowd: four of five entities walk into one region. The loads of the regions are measured
//! repeatedly. If these loads differ too much, the regions' borders are moved: the space-filling curve through the
//! world is divided among the regions anew.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dunlin::space::{Partition, RegionId, RegionLoad};

use super::handover::{longest, settle_and_check};
use super::node::{RegionWeight, WorldCommand};
use super::setting::WorldSetting;
use super::workers::WorldProcesses;
use crate::point::{BenchContext, RunSample};

/// The space-filling curve is divided anew when the highest load of a region exceeds the mean load times this factor.
const TOLERANCE: f64 = 1.1;
/// The regions count as balanced while the highest load of a region is at most the mean load times this factor.
const BALANCED_MAX: f64 = 1.15;
/// The number of ticks between two measurements of the loads, as in a world that balances itself.
const CHECK_TICKS: u64 = 1;

/// Measures for how many consecutive ticks the loads are unbalanced at most, and how unbalanced they are at the end.
pub fn measure(bench: &BenchContext, setting: WorldSetting) -> Result<RunSample> {
    let mut workers = WorldProcesses::start(bench, setting, Duration::ZERO)?;
    let mut partition = setting.partition();
    let ticks = bench.options.count(240, 40);
    let (mut ticks_uneven, mut ticks_uneven_max, mut cuts, mut worst_ns, mut handovers) = (0, 0, 0, None, 0);
    let mut last = 1.0;
    for _ in 0..ticks / CHECK_TICKS {
        let reports = workers.run(setting.tick_ns, CHECK_TICKS)?;
        worst_ns = worst_ns.max(longest(&reports, |report| report.tick_ns[3]));
        handovers += reports.iter().map(|report| report.departed).sum::<u64>();
        let weights: Vec<RegionWeight> = workers.send_to_all(&WorldCommand::RegionLoad)?;
        let loads: Vec<RegionLoad> = weights.into_iter().map(RegionLoad::from).collect();
        last = imbalance(&loads);
        ticks_uneven = if last > BALANCED_MAX { ticks_uneven + CHECK_TICKS } else { 0 };
        ticks_uneven_max = ticks_uneven_max.max(ticks_uneven);
        if let Some(next) = partition.rebalance(&loads, TOLERANCE) {
            apply_partition(&mut workers, &next)?;
            partition = next;
            cuts += 1;
        }
    }
    ensure!(cuts > 0, "no region's border moved during the measurement: the load was never rebalanced");
    settle_and_check(&mut workers)?;
    Ok(RunSample::new()
        .with("uneven_ticks", ticks_uneven_max as f64)
        .with("unevenness", last)
        .with("cuts", f64::from(cuts))
        .with("handovers", handovers as f64)
        .with_time("max_ns", worst_ns)
        .with("lost", 0.0))
}

/// Returns the highest load of a region, divided by the mean load.
fn imbalance(loads: &[RegionLoad]) -> f64 {
    let mean = loads.iter().map(|load| load.amount).sum::<f64>() / loads.len().max(1) as f64;
    loads.iter().fold(0.0, |most: f64, load| most.max(load.amount)) / mean.max(1.0)
}

fn apply_partition(workers: &mut WorldProcesses, partition: &Partition) -> Result<()> {
    let cuts = partition.regions().iter().map(|(first, RegionId(region))| (*first, *region)).collect();
    let confirmations: Vec<bool> = workers.send_to_all(&WorldCommand::Cut(cuts))?;
    confirmations
        .iter()
        .all(|is_confirmed| *is_confirmed)
        .then_some(())
        .context("a worker did not confirm the rebalanced partition")
}
