//! Computes the rows of the Grey document's tables with the cluster simulator. The Grey document is another system's
//! documentation.

use std::cell::RefCell;

use anyhow::{Context, Result, ensure};
use dunlin_scale::sim::{self, CostRow, SimulatedNode, ThroughputRow, Workload};
use dunlin_scale::{Policy, Prices, WorkerNeed};

use crate::clock::{monotonic_ns, processor_ns};
use crate::point::RunSample;

/// The values of the parameter `phase` of case `phases`. In phase `in`, workers are removed. In all other phases,
/// workers are added: in phase `cold` without a warm pool, in phase `warm` with one. The remaining phases have the name
/// of the trigger that adds workers.
pub const PHASES: [&str; 7] = ["cpu", "queue", "latency", "predictive", "in", "cold", "warm"];
/// The values of the parameter `load` of case `noisy`: how busy the workers are before one tenant submits ten times as
/// many tasks.
pub const LOADS: [&str; 2] = ["light", "saturated"];
/// The values of the parameter `strategy` of case `cost`: first the strategies of the Grey document in its order, and
/// then all strategies together.
pub const STRATEGIES: [&str; 5] = ["spot", "predictive", "right_sizing", "night", "all"];

/// The number of worker starts to simulate. Some of the simulated starts fail.
const STARTS: u64 = 20_000;
const MS: f64 = 1e6;
const US: f64 = 1e3;

fn simulate_throughput(seed: u64, workers: u32, tasks: u64) -> Result<ThroughputRow> {
    let row = sim::throughput(seed, workers, tasks, SimulatedNode::default());
    ensure!(row.tasks >= tasks, "only {} of {tasks} tasks were done", row.tasks);
    Ok(row)
}

/// Simulates workers that never run out of tasks, and measures their throughput. Then measures delays while tasks
/// arrive at nine tenths of this throughput.
pub fn scaling(seed: u64, workers: u32, tasks: u64) -> Result<RunSample> {
    let row = simulate_throughput(seed, workers, tasks)?;
    Ok(RunSample::new()
        .with("ops_per_s", row.per_s)
        .with("efficiency", row.efficiency)
        .with("efficiency_nominal", row.efficiency_nominal)
        .with("p50_ns", row.waits.p50_us as f64 * US)
        .with("p99_ns", row.waits.p99_us as f64 * US)
        .with("workers_share", row.used.workers)
        .with("node_cpu_share", row.used.processor)
        .with("log_share", row.used.log)
        .with("network_share", row.used.network)
        .with("memory_share", row.used.memory))
}

/// Measures how long the simulation of `tasks` tasks and `workers` workers takes.
pub fn large(seed: u64, workers: u32, tasks: u64) -> Result<RunSample> {
    let (start_ns, start_cpu_ns) = (monotonic_ns(), processor_ns());
    let row = simulate_throughput(seed, workers, tasks)?;
    let (elapsed_ns, cpu_ns) = (monotonic_ns() - start_ns, processor_ns() - start_cpu_ns);
    Ok(RunSample::new()
        .with("elapsed_ns", elapsed_ns as f64)
        .with("cpu_ns", cpu_ns as f64)
        .with("tasks", row.tasks as f64)
        .with("task_cpu_ns", cpu_ns as f64 / row.tasks as f64))
}

/// Simulates a phase, and measures the time from when a threshold is crossed until workers have been added or removed.
pub fn phase(seed: u64, phase: &str) -> Result<RunSample> {
    match phase {
        "in" => scale_in(seed),
        "cold" | "warm" => warm_pool(seed, phase == "warm"),
        trigger => scale_out(seed, trigger),
    }
}

fn scale_out(seed: u64, trigger: &str) -> Result<RunSample> {
    let rows = sim::scale_out(seed);
    let row = rows.iter().find(|row| row.trigger.name() == trigger);
    let row = row.with_context(|| format!("the autoscaler made no decision for trigger {trigger}"))?;
    Ok(RunSample::new()
        .with("detection_ns", row.detection_ms as f64 * MS)
        .with("decision_ns", row.decision_ms as f64 * MS)
        .with("ready_ns", row.ready_ms as f64 * MS)
        .with("total_ns", row.total_ms() as f64 * MS)
        .with("workers_more", f64::from(row.workers)))
}

fn scale_in(seed: u64) -> Result<RunSample> {
    let row = sim::scale_in(seed).context("no worker was removed")?;
    Ok(RunSample::new()
        .with("detection_ns", row.cooldown_ms as f64 * MS)
        .with("decision_ns", row.decision_ms as f64 * MS)
        .with("drain_ns", row.drain_ms as f64 * MS)
        .with("termination_ns", row.termination_ms as f64 * MS)
        .with("total_ns", row.total_ms() as f64 * MS))
}

fn warm_pool(seed: u64, is_warm: bool) -> Result<RunSample> {
    let rows = sim::warm_pool(seed, STARTS);
    let row = rows.iter().find(|row| (row.size > 0) == is_warm).context("the autoscaler made no decision")?;
    ensure!(row.starts >= STARTS, "only {} of {STARTS} workers were started", row.starts);
    Ok(RunSample::new()
        .with("total_ns", row.total_ms as f64 * MS)
        .with("failed_share", row.failed as f64 / row.starts as f64)
        .with("warm_hours_per_hour", row.warm_hours_per_hour))
}

/// Simulates the four tenants of the Grey document. Each tenant has more work than its quota allows.
pub fn tenants(seed: u64) -> Result<RunSample> {
    let (rows, jain) = sim::tenants(seed);
    ensure!(rows.len() == 4, "unexpected number of tenants: {}", rows.len());
    let share = |of: fn(&sim::TenantRow) -> f64| rows.iter().map(of).fold(f64::INFINITY, f64::min);
    Ok(RunSample::new()
        .with("jain", jain)
        .with("compliant_share", rows.iter().filter(|row| row.is_compliant).count() as f64 / 4.0)
        .with("cpu_quota_share", share(|row| row.cpu / row.cpu_quota))
        .with("memory_quota_share", share(|row| row.memory as f64 / row.memory_quota as f64)))
}

/// Simulates a tenant that suddenly submits many tasks. For every other tenant, the sample contains the tenant's
/// throughput during this time, as a share of its throughput before. The sample also contains the lowest of these
/// shares.
pub fn noisy(seed: u64, load: &str) -> Result<RunSample> {
    let rows = sim::noisy_neighbour(seed);
    let lightest = rows.iter().map(|row| row.load).fold(f64::INFINITY, f64::min);
    let is_selected = |row: &&sim::NoisyNeighbourRow| (row.load == lightest) == (load == LOADS[0]);
    let throughput_ratio = |tenant: &str| {
        let row = rows.iter().filter(is_selected).find(|row| row.tenant == tenant);
        row.map(|row| (row.load, 1.0 + row.change()))
            .with_context(|| format!("the results have no tenant {tenant}"))
    };
    let ((load, a), (_, b), (_, c), (_, d)) = (
        throughput_ratio("tenant-a")?,
        throughput_ratio("tenant-b")?,
        throughput_ratio("tenant-c")?,
        throughput_ratio("tenant-d")?,
    );
    Ok(RunSample::new()
        .with("usual_load_share", load)
        .with("noisy_times", a)
        .with("b_kept_share", b)
        .with("c_kept_share", c)
        .with("d_kept_share", d)
        .with("least_kept_share", b.min(c).min(d)))
}

/// The costs of all scaling strategies for one seed. A single simulation computes the costs of all strategies, so its
/// result is kept here.
#[derive(Debug, Default)]
pub struct SimulatedCosts(RefCell<Option<(u64, Vec<CostRow>)>>);

impl SimulatedCosts {
    /// Returns the cost of a month without and with a strategy, in the currency of the prices.
    pub fn of(&self, seed: u64, strategy: &str) -> Result<RunSample> {
        let mut cached = self.0.borrow_mut();
        if cached.as_ref().is_none_or(|(of, _)| *of != seed) {
            *cached = Some((seed, savings(seed)?));
        }
        let rows = cached.as_ref().map(|(_, rows)| rows.as_slice()).unwrap_or_default();
        let row = STRATEGIES.iter().zip(rows).find(|(name, _)| **name == strategy).map(|(_, row)| row);
        let row = row.with_context(|| format!("unknown strategy {strategy}"))?;
        Ok(RunSample::new()
            .with("before_per_month", row.before)
            .with("after_per_month", row.after)
            .with("saves_per_month", row.savings_per_month()))
    }
}

fn savings(seed: u64) -> Result<Vec<CostRow>> {
    let mean_us = 500_000.0;
    let high_per_s = 200.0 * 1e6 / mean_us * 0.7;
    let workload =
        Workload::Diurnal { low_per_s: high_per_s / 7.0, high_per_s, day_ms: 3_600_000, differ: 0.05 };
    let policy = Policy::cloud(10, 250).with_forecast(75_000, vec![48]);
    // The processors and memory that a worker of the Grey document needs. Such a worker runs 85 tasks a second, each
    // with about 17 ms of processor time, and uses 57 % of 8 GB of memory.
    let need = WorkerNeed { cpus: 1.42, memory_gib: 4.6 };
    let rows = sim::savings(seed, &workload, &policy, mean_us, &Prices::default(), (need, "m6i.large"));
    let rows = rows.context("no machine in the table of prices is large enough for a worker")?;
    ensure!(rows.len() == STRATEGIES.len(), "unexpected number of strategies: {}", rows.len());
    Ok(rows)
}
