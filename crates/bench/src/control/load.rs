//! Measures requests of one kind to a cluster, with many requests in flight: their rate and latency, and how much the
//! cluster writes to the disk.

use std::time::Duration;

use anyhow::Result;

use super::cluster;
use super::disk;
use super::work::{ControlReport, ControlWorkload};
use crate::point::{BenchContext, RunSample, target};

/// How long writes to the disk alone (the floor) are measured, directly after the load.
const FLOOR: Duration = Duration::from_millis(300);

/// Starts nodes and clients, and measures the requests of `work`.
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
    // Disk writes are not reported for measurements at half of the peak rate, because these begin with requests at the
    // peak rate.
    let writes = matches!(work.case.as_str(), "put" | "cas" | "batch") && !work.half;
    let Some(per_s) = per_s.filter(|_| writes) else { return Ok(sample) };
    let floor = disk::measure(disk::LARGE_BYTES, FLOOR.min(bench.options.time))?;
    let share = floor.get("bytes_per_s").map(|floor| per_s / floor);
    Ok(sample.with("disk_bytes_per_s", per_s).with_optional("disk_share", share))
}

/// Applies full load for a long time and counts elections. No elections are expected, because no node is killed.
pub fn measure_soak(bench: &BenchContext, nodes: usize, work: &ControlWorkload) -> Result<RunSample> {
    let cluster = cluster::start(bench, target::DUNLIN, nodes)?;
    let report = ControlReport::of(work, &mut cluster.clients(bench, work)?)?;
    let seconds = report.elapsed_ns as f64 / 1e9;
    Ok(report.sample().with("seconds", seconds).with("elections", report.elections as f64))
}

/// Measures round trips between nodes that otherwise do nothing.
pub fn measure_round_trips(bench: &BenchContext, nodes: usize, work: &ControlWorkload) -> Result<RunSample> {
    let cluster = cluster::start(bench, target::DUNLIN, nodes)?;
    Ok(ControlReport::of(work, &mut cluster.clients(bench, work)?)?.sample())
}

/// Writes at a rate while watchers read every event. Measures which part of the requested write rate is reached.
pub fn measure_watch(bench: &BenchContext, nodes: usize, work: &ControlWorkload) -> Result<RunSample> {
    let cluster = cluster::start(bench, target::DUNLIN, nodes)?;
    let report = ControlReport::of(work, &mut cluster.clients(bench, work)?)?;
    let seconds = report.elapsed_ns as f64 / 1e9;
    Ok(report
        .sample()
        .with("rate_held", report.ops as f64 / seconds / work.rate)
        .with("deliveries", report.events as f64))
}
