//! Measures requests of one kind, with many requests in flight to a cluster. The results are the rate and the latency
//! of the requests, and how much the cluster writes to the disk.

use std::time::Duration;

use anyhow::Result;

use super::cluster;
use super::disk;
use super::work::{ControlReport, ControlWorkload};
use crate::point::{BenchContext, RunSample, target};

/// How long the disk's own speed (the floor) is measured after the load.
const FLOOR: Duration = Duration::from_millis(300);

/// Starts nodes and clients, and measures the requests that `work` describes.
pub fn measure(
    bench: &BenchContext,
    target: &'static str,
    nodes: usize,
    work: &ControlWorkload,
) -> Result<RunSample> {
    let cluster = cluster::start(bench, target, nodes)?;
    let device = disk::DiskWatch::start()?;
    let sample = ControlReport::of(work, &mut cluster.clients(bench, work)?)?.sample();
    let per_s = device.and_then(|device| device.max_bytes_per_s(Duration::from_nanos(work.time_ns)));
    drop(cluster);
    // With `work.half`, the clients first make requests at the highest rate. The disk writes at the two rates cannot be
    // told apart, so they are not reported.
    let writes = matches!(work.case.as_str(), "put" | "cas" | "batch") && !work.half;
    let Some(per_s) = per_s.filter(|_| writes) else { return Ok(sample) };
    let floor = disk::measure(disk::LARGE_BYTES, FLOOR.min(bench.options.time))?;
    let share = floor.get("bytes_per_s").map(|floor| per_s / floor);
    Ok(sample.with("disk_bytes_per_s", per_s).with_optional("disk_share", share))
}

/// Applies full load for a long time, and counts the elections. No node is killed, so there should be none.
pub fn measure_soak(bench: &BenchContext, nodes: usize, work: &ControlWorkload) -> Result<RunSample> {
    let cluster = cluster::start(bench, target::DUNLIN, nodes)?;
    let report = ControlReport::of(work, &mut cluster.clients(bench, work)?)?;
    let seconds = report.elapsed_ns as f64 / 1e9;
    Ok(report.sample().with("seconds", seconds).with("elections", report.elections as f64))
}

/// Measures round trips between nodes that have no other work.
pub fn measure_round_trips(bench: &BenchContext, nodes: usize, work: &ControlWorkload) -> Result<RunSample> {
    let cluster = cluster::start(bench, target::DUNLIN, nodes)?;
    Ok(ControlReport::of(work, &mut cluster.clients(bench, work)?)?.sample())
}

/// Writes at a fixed rate while watchers read every event. Measures which share of this rate is reached.
pub fn measure_watch(bench: &BenchContext, nodes: usize, work: &ControlWorkload) -> Result<RunSample> {
    let cluster = cluster::start(bench, target::DUNLIN, nodes)?;
    let report = ControlReport::of(work, &mut cluster.clients(bench, work)?)?;
    let seconds = report.elapsed_ns as f64 / 1e9;
    Ok(report
        .sample()
        .with("rate_held", report.ops as f64 / seconds / work.rate)
        .with("deliveries", report.events as f64))
}
