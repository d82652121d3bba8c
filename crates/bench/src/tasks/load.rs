//! Measures tasks through nodes: cycles of empty tasks, workers that sleep for each task, several tenants, and a tenant
//! that submits too much.

use anyhow::Result;
use dunlin_tasks::jain;

use super::nodes::{ClusterSize, TaskNodes};
use super::peer;
use super::work::{TaskReport, TaskWorkload, TenantWorkload};
use crate::point::{BenchContext, RunSample, target};

/// The load at which waiting times are measured, as a share of the workers' capacity.
pub const PACED_SHARE: f64 = 0.9;

/// Measures the highest rate of cycles. In each cycle, a task is submitted, assigned to a worker, and completed.
pub fn measure_cycles(
    bench: &BenchContext,
    target: &'static str,
    size: ClusterSize,
    work: &TaskWorkload,
) -> Result<RunSample> {
    if target != target::DUNLIN {
        return Ok(peer::measure(bench, target, work)?.sample());
    }
    let nodes = TaskNodes::start(bench, size)?;
    let (report, used) = run_observed(bench, &nodes, work)?;
    Ok(report.sample().and(used))
}

/// Measures workers that sleep for each task, in three ways: without a node, with tasks always waiting, and with
/// submissions at nine tenths of the workers' capacity.
pub fn measure_scaling(bench: &BenchContext, shards: u8, work: &TaskWorkload) -> Result<RunSample> {
    let nodes = TaskNodes::start(bench, ClusterSize { nodes: 1, shards })?;
    let mut bare = work.clone();
    bare.ours.bare = true;
    let bare = TaskReport::of(&bare, &mut nodes.clients(bench, &bare)?)?;
    let (saturated, used) = run_observed(bench, &nodes, work)?;
    let nominal_per_s = work.workers as f64 * 1e9 / work.task_ns as f64;
    let paced = TaskWorkload { rate: PACED_SHARE * nominal_per_s, ..work.clone() };
    let paced = TaskReport::of(&paced, &mut nodes.clients(bench, &paced)?)?;
    Ok(RunSample::new()
        .with("ops_per_s", saturated.per_s())
        .with("workers_in_a_process", saturated.workers_in_a_process as f64)
        .with("bare_per_s", bare.per_s())
        .with("efficiency", saturated.per_s() / bare.per_s())
        .with("efficiency_nominal", saturated.per_s() / nominal_per_s)
        .with("paced_per_s", paced.per_s())
        .and(paced.latencies())
        .and(used))
}

/// Measures how the tenants share workers that are always busy. Each tenant's throughput is compared with the share to
/// which the tenant's weight entitles it.
pub fn measure_sharing(bench: &BenchContext, work: &TaskWorkload) -> Result<RunSample> {
    let nodes = TaskNodes::start(bench, ClusterSize::of(1))?;
    let (report, used) = run_observed(bench, &nodes, work)?;
    let throughputs: Vec<f64> = report.tenants.iter().map(|ops| *ops as f64).collect();
    let weights: Vec<f64> = work.ours.tenants.iter().map(|tenant| f64::from(tenant.weight)).collect();
    // A tenant always has more waiting tasks than the workers take, so its demand counts as infinite.
    let demands = vec![f64::INFINITY; throughputs.len()];
    let (sum, weight): (f64, f64) = (throughputs.iter().sum(), weights.iter().sum());
    let shares =
        throughputs.iter().zip(&weights).map(|(throughput, share)| throughput / (sum * share / weight));
    Ok(report
        .sample()
        .with("jain", jain(&throughputs, &demands, &weights))
        .with("least_share", shares.clone().fold(f64::INFINITY, f64::min))
        .with("most_share", shares.fold(0.0, f64::max))
        .and(used))
}

/// Measures the throughput of all tenants except the first. Meanwhile, the first tenant submits `times` times as many
/// tasks as usual.
pub fn measure_noisy_tenant(bench: &BenchContext, work: &TaskWorkload, times: f64) -> Result<RunSample> {
    let nodes = TaskNodes::start(bench, ClusterSize::of(1))?;
    let before = TaskReport::of(work, &mut nodes.clients(bench, work)?)?;
    let mut noisy = work.clone();
    noisy.ours.tenants[0].per_s *= times;
    let during = TaskReport::of(&noisy, &mut nodes.clients(bench, &noisy)?)?;
    let ratios: Vec<f64> = during
        .tenants
        .iter()
        .zip(&before.tenants)
        .map(|(during, before)| *during as f64 / *before as f64)
        .collect();
    let [a, b, c, d] = ratios.as_slice() else {
        anyhow::bail!("the run has ratios of {} tenants, expected four", ratios.len())
    };
    Ok(RunSample::new()
        .with("usual_load_share", load_share(work))
        .with("noisy_times", *a)
        .with("b_kept_share", *b)
        .with("c_kept_share", *c)
        .with("d_kept_share", *d)
        .with("least_kept_share", b.min(*c).min(*d)))
}

fn load_share(work: &TaskWorkload) -> f64 {
    let per_s: f64 = work.ours.tenants.iter().map(|TenantWorkload { per_s, .. }| per_s).sum();
    per_s * work.task_ns as f64 / 1e9 / work.workers as f64
}

/// Lets a client process do the work. Returns its report, and the processor time and the memory that the nodes used.
fn run_observed(
    bench: &BenchContext,
    nodes: &TaskNodes,
    work: &TaskWorkload,
) -> Result<(TaskReport, RunSample)> {
    let cpu_ns = nodes.cpu_ns()?;
    let report = TaskReport::of(work, &mut nodes.clients(bench, work)?)?;
    // The nodes' processor time includes tasks outside the counted time, so this time is divided by the number of all
    // completed tasks.
    let node_ns = (nodes.cpu_ns()? - cpu_ns) as f64 / report.completed as f64;
    let clients_ns = report.cpu_ns as f64 / report.ops as f64;
    let sample = RunSample::new()
        .with("task_node_cpu_ns", node_ns)
        .with("task_clients_cpu_ns", clients_ns)
        .with("memory_bytes", nodes.memory_bytes()? as f64);
    Ok((report, sample))
}
