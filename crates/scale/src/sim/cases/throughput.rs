//! How throughput grows with workers, and what stops it.

use crate::sim::node::{Node, Used};
use crate::sim::outcome::Waits;
use crate::sim::scenario::{Crew, Load, Scenario, TenantLoad};
use crate::sim::workload::Workload;

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct ThroughputRow {
    /// So many workers.
    pub workers: u32,
    /// Tasks done in a second, always with some waiting.
    pub per_s: f64,
    /// Against the same workers looping without a scheduler.
    pub efficiency: f64,
    /// Against 85 in a second for each.
    pub efficiency_nominal: f64,
    /// What was used of what there was, always with some waiting.
    pub used: Used,
    /// From submission to start at nine tenths of that, at random times.
    pub waits: Waits,
    /// And to the end.
    pub done: Waits,
    /// Tasks of both runs.
    pub tasks: u64,
}

/// At `workers`, with `tasks` tasks in the run with some waiting, and a tenth of them at nine tenths of its pace.
pub fn throughput(seed: u64, workers: u32, tasks: u64, node: Node) -> ThroughputRow {
    let fixed = Crew::Fixed { workers };
    let waiting = u64::from(workers) * 4 + 1_000;
    let mut scenario = Scenario {
        node,
        tasks_max: tasks,
        ..Scenario::new(seed, vec![TenantLoad::new("all", Load::Saturated { waiting })], fixed)
    };
    let nominal = f64::from(workers) * 1e6 / scenario.service.mean_us;
    // Long enough for the first to be done, and for all of it even at a hundredth of the pace.
    scenario.duration_ms = 1_000 + (tasks as f64 / nominal * 100_000.0) as u64;
    let full = super::super::run(&scenario);
    let load = Load::Paced(Workload::Constant { per_s: full.per_s * 0.9 });
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
