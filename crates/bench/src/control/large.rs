//! Measures a cluster with many keys: how long a killed node takes to serve again, and how long a snapshot takes while
//! keys are written.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cluster::{self, MeasuredCluster};
use super::work::{ControlReport, ControlWorkload};
use crate::child::{Child, TIMEOUT};
use crate::clock::monotonic_ns;
use crate::point::{BenchContext, RunSample, target};

/// The longest time that the loading of ten million keys may take.
const FILL_MAX: Duration = Duration::from_secs(300);

/// Loads the keys of `work`, kills the only node and restarts it. Measures the time from the start of the new process
/// to its first linearizable response, and the memory of the new process. Every thousandth key is read and checked.
pub fn restart(bench: &BenchContext, work: &ControlWorkload) -> Result<RunSample> {
    let mut cluster = cluster::start(bench, target::DUNLIN, 1)?;
    let mut filling = cluster.clients(bench, &ControlWorkload { case: "fill".to_owned(), ..work.clone() })?;
    let filled: ControlReport = filling.read_line(FILL_MAX)?;
    drop(filling);
    cluster.kill(0)?;
    let start_ns = monotonic_ns();
    cluster.restart(bench, 0)?;
    let verify_work = ControlWorkload { case: "look".to_owned(), ..work.clone() };
    let first_read: ControlReport = cluster.clients(bench, &verify_work)?.read_line(FILL_MAX)?;
    ensure!(first_read.first_ns > start_ns, "the node's first response came before its start");
    Ok(RunSample::new()
        .with("serving_ns", (first_read.first_ns - start_ns) as f64)
        .with("keys_per_s", filled.ops as f64 * 1e9 / filled.elapsed_ns as f64)
        .with("keys", work.keys as f64)
        .with("rss_bytes", resident_bytes(&*cluster)?))
}

fn resident_bytes(cluster: &dyn MeasuredCluster) -> Result<f64> {
    let path = format!("/proc/{}/status", cluster.processes()[0]);
    let text = std::fs::read_to_string(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let kib: f64 = line.with_context(|| format!("{path} has no VmRSS"))?.parse()?;
    Ok(kib * 1024.0)
}

/// Lets the leader take a snapshot of all keys while clients write. Measures how long the snapshot takes, and how fast
/// the clients write meanwhile.
pub fn snapshot(bench: &BenchContext, nodes: usize, work: &ControlWorkload) -> Result<RunSample> {
    let cluster = cluster::start(bench, target::DUNLIN, nodes)?;
    let snapshot_work = ControlWorkload { case: "snapshot".to_owned(), ..work.clone() };
    let mut clients: Child = cluster.clients(bench, &snapshot_work)?;
    let report: ControlReport = clients.read_line(FILL_MAX + TIMEOUT)?;
    Ok(RunSample::new()
        .with("snapshot_ns", report.first_ns as f64)
        .with("keys", work.keys as f64)
        .and(report.sample()))
}
