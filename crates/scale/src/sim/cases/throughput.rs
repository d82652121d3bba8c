//! Simulates the throughput of a given number of workers, and finds the resource that limits it.

use crate::sim::node::{SimulatedNode, Utilization};
use crate::sim::outcome::WaitTimes;
use crate::sim::scenario::{SimulationScenario, SubmissionLoad, TenantLoad, WorkerSupply};
use crate::sim::workload::Workload;

/// The simulated throughput and waiting times of a given number of workers.
#[derive(Debug, Clone, PartialEq)]
pub struct ThroughputRow {
    /// The number of workers.
    pub workers: u32,
    /// The number of completed tasks per second while a constant number of tasks wait.
    pub per_s: f64,
    /// The throughput, as a share of the throughput that the same workers would have without a scheduler.
    pub efficiency: f64,
    /// The throughput, as a share of 85 tasks per second for each worker.
    pub efficiency_nominal: f64,
    /// The use of each resource while a constant number of tasks wait.
    pub used: Utilization,
    /// The times from submission to start. They are measured in a second run, in which tasks arrive at random at 0.9 of
    /// the throughput.
    pub waits: WaitTimes,
    /// The times from submission to completion in the second run.
    pub done: WaitTimes,
    /// The number of completed tasks in both runs together.
    pub tasks: u64,
}

/// Runs `tasks` tasks while a constant number of tasks wait, and measures the throughput. Then runs `tasks` ÷ 10 tasks,
/// but at least 1,000, which arrive at 0.9 of this throughput, and measures the waiting times.
pub fn throughput(seed: u64, workers: u32, tasks: u64, node: SimulatedNode) -> ThroughputRow {
    let fixed = WorkerSupply::Fixed { workers };
    let waiting = u64::from(workers) * 4 + 1_000;
    let mut scenario = SimulationScenario {
        node,
        tasks_max: tasks,
        ..SimulationScenario::new(
            seed,
            vec![TenantLoad::new("all", SubmissionLoad::Saturated { waiting })],
            fixed,
        )
    };
    let nominal = f64::from(workers) * 1e6 / scenario.service.mean_us;
    // Leaves enough time for all tasks, even if only a hundredth of the nominal rate is reached.
    scenario.duration_ms = 1_000 + (tasks as f64 / nominal * 100_000.0) as u64;
    let full = super::super::run(&scenario);
    let load = SubmissionLoad::Paced(Workload::Constant { per_s: full.per_s * 0.9 });
    scenario.tenants[0].load = load;
    scenario.tasks_max = (tasks / 10).max(1_000);
    let paced = super::super::run(&scenario);
    ThroughputRow {
        workers,
        per_s: full.per_s,
        efficiency: full.efficiency,
        efficiency_nominal: full.efficiency_nominal,
        used: full.used,
        waits: paced.waits,
        done: paced.done,
        tasks: full.completed + paced.completed,
    }
}
