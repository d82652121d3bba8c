//! Recommends machines and a number of workers for a measured load.

use crate::plan::Demand;
use crate::prices::{MachineType, Prices};
use crate::sim::SimulatedNode;
use crate::sizing::{MachineFit, WorkerNeed};

/// A recommended cluster: machine types, numbers of coordinators and workers, the cost, and the reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// The number of coordinators, which are the nodes that schedule tasks.
    pub coordinators: u32,
    /// The machine type of the coordinators.
    pub coordinator: MachineType,
    /// The number of shards, which are groups of tenants with a scheduling processor of their own.
    pub shards: u32,
    /// The minimum number of workers.
    pub workers_min: u32,
    /// The recommended number of workers.
    pub workers: u32,
    /// The maximum number of workers.
    pub workers_max: u32,
    /// The machine type of the workers, and how many workers run on one machine.
    pub fit: MachineFit,
    /// The mean cost per month.
    pub cost: f64,
    /// The reasons for the recommendation, with one sentence for each.
    pub reasons: Vec<String>,
}

/// The highest load that is recommended for a coordinator's processors and memory, as a share.
const USE_MAX: f64 = 0.6;
/// The number of processors for each shard: one to schedule tasks, and one for the network and the log.
const CPUS_PER_SHARD: u32 = 2;
const CPU_TARGET: f64 = 0.7;
/// The memory that a waiting task takes in addition to its payload, in bytes.
const TASK_BYTES: f64 = 400.0;

/// Recommends a cluster for the load `demand`, if each worker needs `need`. `spot_percent` is the percentage of spot
/// instances among the workers beyond the number that is always on demand. Returns `None` if no machine type in the
/// table is large enough.
pub fn recommend(
    demand: &Demand,
    need: &WorkerNeed,
    prices: &Prices,
    node: &SimulatedNode,
    spot_percent: u32,
) -> Option<Recommendation> {
    let workers_for =
        |per_s: f64| (per_s * demand.task_ms / 1_000.0 / CPU_TARGET).ceil().clamp(1.0, 1e6) as u32;
    let (workers, peak) = (workers_for(demand.per_s), workers_for(demand.peak_per_s));
    let (workers_min, workers_max) = ((workers / 2).max(1), peak.max(workers) + peak / 5);
    let per_task_us = node.submit_us + node.dispatch_us;
    let busy = demand.peak_per_s * per_task_us / 1e6;
    let shards = (busy / USE_MAX).ceil().clamp(1.0, 1_024.0) as u32;
    let queue_gib =
        2.0 * demand.queued as f64 * (TASK_BYTES + demand.payload_bytes as f64) / f64::from(1 << 30);
    let suffices = |machine: &&MachineType| {
        machine.cpus >= shards * CPUS_PER_SHARD && machine.memory_gib * USE_MAX >= queue_gib
    };
    let coordinator =
        prices.machines.iter().filter(suffices).min_by(|a, b| a.per_hour.total_cmp(&b.per_hour))?.clone();
    let coordinators = if workers_max > 50 { 5 } else { 3 };
    // As in Dunlin's requirements, half of the minimum number of workers is always on demand.
    let base = workers_min / 2;
    let spot_workers = f64::from(workers - base.min(workers)) * f64::from(spot_percent.min(100)) / 100.0;
    let on_demand = f64::from(workers) - spot_workers;
    let fit = need.cheapest_for(prices, on_demand, spot_workers)?;
    let per_hour = f64::from(coordinators) * coordinator.per_hour + fit.per_hour(on_demand, spot_workers);
    let reasons = vec![
        format!(
            "{:.0} tasks of {:.1} ms each per second ({:.0} at the peak), on processors that are {:.0} % \
             busy, need {workers} workers ({peak} at the peak)",
            demand.per_s,
            demand.task_ms,
            demand.peak_per_s,
            CPU_TARGET * 100.0
        ),
        format!(
            "a worker needs {:.2} processors and {:.1} GiB: workers on one {}: {}",
            need.cpus, need.memory_gib, fit.machine.name, fit.workers
        ),
        format!(
            "scheduling takes {per_task_us:.1} µs per task and {busy:.2} processors at the peak, which needs \
             {shards} group{} of tenants",
            if shards == 1 { "" } else { "s" }
        ),
        format!("{} waiting tasks take {queue_gib:.2} GiB while a snapshot is made", demand.queued),
        format!("{coordinators} coordinators tolerate the loss of {} of them", coordinators / 2),
    ];
    Some(Recommendation {
        coordinators,
        coordinator,
        shards,
        workers_min,
        workers,
        workers_max,
        fit,
        cost: per_hour * prices.hours_per_month,
        reasons,
    })
}

impl Recommendation {
    /// Returns the recommendation as a YAML document, which [`ScalingDocument::parse`](crate::ScalingDocument::parse)
    /// can read. If a machine has several workers, each gets an equal share of the processors and memory.
    pub fn to_yaml(&self, spot_percent: u32) -> String {
        let Recommendation { coordinator, fit, .. } = self;
        let gib = |gib: f64| format!("{}Mi", (gib * 1_024.0) as u64);
        let share = f64::from(fit.workers.max(1));
        // Rounds each share down, because with larger shares fewer workers would fit onto the machine.
        let cpus = (f64::from(fit.machine.cpus) / share * 100.0).floor() / 100.0;
        format!(
            "coordinators:\n  count: {}\n  instanceType: {}\n  cpu: {}\n  memory: {}\n\
             workers:\n  count: {}\n  instanceType: {}\n  cpu: {}\n  memory: {}\n  spotPercentage: {}%\n\
             scaling:\n  horizontal:\n    minWorkers: {}\n    maxWorkers: {}\n    targetCpuUtilization: {:.0}%\n  \
             vertical:\n    coordinators: manual\n    workers: auto\n  predictive:\n    enabled: true\n    leadTime: 10m\n",
            self.coordinators,
            coordinator.name,
            coordinator.cpus,
            gib(coordinator.memory_gib),
            self.workers,
            fit.machine.name,
            cpus,
            gib(fit.machine.usable_gib() / share),
            spot_percent.min(100),
            self.workers_min,
            self.workers_max,
            CPU_TARGET * 100.0,
        )
    }
}
