//! Computes the load and the cost of a cluster that a document describes, and warns of problems.

use crate::document::{InstanceGroup, ScalingDocument};
use crate::prices::Prices;
use crate::sim::SimulatedNode;
use crate::sizing::MachineFit;

/// The load for which a cluster is planned: how many tasks arrive, how long they run, and how many wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// The mean number of tasks that arrive per second.
    pub per_s: f64,
    /// The highest number of tasks that arrive per second.
    pub peak_per_s: f64,
    /// The mean run time of a task, in ms.
    pub task_ms: f64,
    /// The highest number of waiting tasks.
    pub queued: u64,
    /// The size of a task's payload in bytes.
    pub payload_bytes: u64,
}

/// The result of planning a cluster for a load: its number of workers, the load of its coordinators, and its costs.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacityPlan {
    /// The mean number of workers.
    pub workers: f64,
    /// The number of workers at the peak.
    pub workers_peak: u32,
    /// The load of the processors with which a coordinator schedules tasks, at the peak, from 0 to 1. There is one such
    /// processor for each shard of tenants.
    pub coordinator_cpu: f64,
    /// The share of a coordinator's memory that is in use when the number of waiting tasks is highest.
    pub coordinator_memory: f64,
    /// The costs per month for the coordinators, the workers and the warm pool.
    pub cost: [f64; 3],
    /// Warnings about the cluster, such as overload or a missing price.
    pub warnings: Vec<String>,
}

/// The memory that a waiting task takes without its payload, in bytes, as measured in `docs/tasks.md`.
const TASK_BYTES: f64 = 400.0;

/// Computes a plan for the cluster in `document`, a load and prices. A machine type that is not in the price table
/// counts as free of charge, and causes a warning.
pub fn plan(
    document: &ScalingDocument,
    demand: &Demand,
    prices: &Prices,
    node: &SimulatedNode,
) -> CapacityPlan {
    let policy = &document.policy;
    let (min, max) = (policy.workers_min, policy.workers_max);
    let workers_for = |per_s: f64| per_s * demand.task_ms / 1_000.0 / policy.triggers.cpu_target;
    let workers = workers_for(demand.per_s).clamp(f64::from(min), f64::from(max));
    let peak = workers_for(demand.peak_per_s).ceil();
    let mut warnings = Vec::new();
    let cost = cost(document, workers, prices, &mut warnings);
    let coordinators = &document.coordinators;
    let per_task_us = node.submit_us + node.dispatch_us;
    let coordinator_cpu = demand.peak_per_s * per_task_us / 1e6 / f64::from(node.shards.max(1));
    let memory_bytes = coordinators.memory_gib * f64::from(1 << 30);
    let queue_bytes = demand.queued as f64 * (TASK_BYTES + demand.payload_bytes as f64);
    // While a snapshot is written, it shares memory with the state. At worst, the two together take twice the memory of
    // the state.
    let coordinator_memory = 2.0 * queue_bytes / memory_bytes;
    let usual = document.workers.count;
    let mut warn = |condition: bool, text: String| {
        if condition {
            warnings.push(text)
        }
    };
    warn(
        peak > f64::from(max),
        format!(
            "the peak needs {peak:.0} workers that are {:.0} % busy, but the maximum is {max} workers",
            policy.triggers.cpu_target * 100.0
        ),
    );
    warn(
        !(min..=max).contains(&usual),
        format!("workers.count is {usual}, outside of {min} to {max}: the scaler will change it"),
    );
    warn(
        coordinators.count.is_multiple_of(2),
        format!(
            "{} coordinators tolerate the loss of no more coordinators than {} do: use an odd number",
            coordinators.count,
            coordinators.count.saturating_sub(1)
        ),
    );
    warn(
        coordinator_cpu > 0.6,
        format!(
            "at the peak load, each processor that schedules tasks is {:.0} % busy: divide the tenants into more \
             shards",
            coordinator_cpu * 100.0
        ),
    );
    warn(
        coordinator_memory > 0.6,
        format!(
            "{} waiting tasks take {:.0} % of a coordinator's memory",
            demand.queued,
            coordinator_memory * 100.0
        ),
    );
    CapacityPlan {
        workers,
        workers_peak: peak.clamp(f64::from(min), f64::from(u32::MAX)) as u32,
        coordinator_cpu,
        coordinator_memory,
        cost,
        warnings,
    }
}

fn cost(document: &ScalingDocument, workers: f64, prices: &Prices, warnings: &mut Vec<String>) -> [f64; 3] {
    let mut machine_fit = |group: &InstanceGroup, is_alone: bool| {
        let Some(machine) = prices.machine(&group.machine) else {
            warnings.push(format!(
                "the price table has no machine {}, so the cost does not include it",
                group.machine
            ));
            return None;
        };
        let workers_fitting =
            |memory_gib: f64| (f64::from(machine.cpus) / group.cpus).min(memory_gib / group.memory_gib);
        let fit = workers_fitting(machine.memory_gib);
        if fit < 1.0 {
            let InstanceGroup { cpus, memory_gib, .. } = group;
            warnings.push(format!(
                "{cpus} processors and {memory_gib} GiB do not fit onto a machine of type {}",
                machine.name
            ));
        }
        // A worker or node that is alone on its machine may use all memory. Several workers must leave some for the
        // operating system.
        let workers = if is_alone { 1 } else { workers_fitting(machine.usable_gib()).clamp(1.0, 1e6) as u32 };
        Some(MachineFit::new(machine, workers))
    };
    let spot = &document.policy.spot;
    // Coordinators on the same machine would fail together, so each of them has a machine of its own.
    let coordinator = machine_fit(&document.coordinators, true);
    let worker = machine_fit(&document.workers, false);
    let spot_workers = (workers - f64::from(spot.base)).max(0.0) * f64::from(spot.percent) / 100.0;
    let hours = prices.hours_per_month;
    [
        coordinator.map_or(0.0, |fit| fit.per_hour(f64::from(document.coordinators.count), 0.0)) * hours,
        worker.map_or(0.0, |fit| fit.per_hour(workers - spot_workers, spot_workers)) * hours,
        f64::from(document.policy.warm.size) * prices.warm_per_hour * hours,
    ]
}
