//! Simulates several tenants that share the workers: how much each tenant receives, and what happens to the others when
//! one of them submits ten times as much as usual.

use dunlin_tasks::Quota;

use crate::sim::scenario::{ServiceTime, SimulationScenario, SubmissionLoad, TenantLoad, WorkerSupply};
use crate::sim::workload::Workload;

/// A simulated tenant: its quotas, and the resources that its tasks used.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantRow {
    /// The name of the tenant.
    pub tenant: String,
    /// The number of cores that the tenant's quota allows.
    pub cpu_quota: f64,
    /// The memory that the tenant's quota allows, in bytes.
    pub memory_quota: u64,
    /// The mean number of cores that the tenant's tasks held.
    pub cpu: f64,
    /// The mean memory that the tenant's tasks held, in bytes.
    pub memory: u64,
    /// Whether the tenant's tasks never held more cores or more memory than its quotas allow.
    pub is_compliant: bool,
}

const MILLI: u64 = 1_000;
const GB: u64 = 1_000_000_000;

/// Simulates four tenants with quotas of 200, 150, 100 and 50 cores. The tenants are those of the Grey document, which
/// describes another system. Each of them submits more than its quota allows. Returns a row for each tenant, and Jain's
/// fairness index.
pub fn tenants(seed: u64) -> (Vec<TenantRow>, f64) {
    let quotas = [("tenant-a", 200), ("tenant-b", 150), ("tenant-c", 100), ("tenant-d", 50)];
    let loads = quotas.iter().map(|&(name, cores)| TenantLoad {
        weight: cores as u32,
        cpu_milli: Quota::at_most(cores * MILLI),
        memory_bytes: Quota::at_most(cores * 2 * GB),
        needs: (2_000, 4 * GB),
        ..TenantLoad::new(name, SubmissionLoad::Saturated { waiting: 2_000 })
    });
    let supply = WorkerSupply::Fixed { workers: 250 };
    let scenario = SimulationScenario {
        duration_ms: 70_000,
        warm_up_ms: 10_000,
        step_ms: 5,
        credit: 1,
        service: ServiceTime { mean_us: 400_000.0, spread: 0.1 },
        ..SimulationScenario::new(seed, loads.collect(), supply)
    };
    let outcome = super::super::run(&scenario);
    let rows = quotas.iter().zip(&outcome.tenants).map(|(&(name, cores), tenant)| TenantRow {
        tenant: name.to_owned(),
        cpu_quota: cores as f64,
        memory_quota: cores * 2 * GB,
        cpu: tenant.held_mean[0] / MILLI as f64,
        memory: tenant.held_mean[1] as u64,
        is_compliant: tenant.held_most[0] <= cores * MILLI && tenant.held_most[1] <= cores * 2 * GB,
    });
    (rows.collect(), outcome.jain)
}

/// The simulated throughput of a tenant, first as usual, and then while one tenant submits ten times as much.
#[derive(Debug, Clone, PartialEq)]
pub struct NoisyNeighbourRow {
    /// The share of the workers that are busy while all tenants submit as usual.
    pub load: f64,
    /// The name of the tenant.
    pub tenant: String,
    /// The completed tasks per second while all tenants submit as usual.
    pub before_per_s: f64,
    /// The completed tasks per second while the first tenant submits ten times as much.
    pub during_per_s: f64,
}

impl NoisyNeighbourRow {
    /// Returns the change of the tenant's throughput, as a share of its usual throughput.
    pub fn change(&self) -> f64 {
        self.during_per_s / self.before_per_s - 1.0
    }
}

/// Simulates two cases. In the first one, 8 % of the workers are busy with the usual load, as in Dunlin's requirements.
/// In the second one, there are too few workers for all tasks of the first tenant.
pub fn noisy_neighbour(seed: u64) -> Vec<NoisyNeighbourRow> {
    [48, 5].into_iter().flat_map(|workers| simulate_noisy_neighbour(seed, workers)).collect()
}

fn simulate_noisy_neighbour(seed: u64, workers: u32) -> Vec<NoisyNeighbourRow> {
    const FOR_MS: u64 = 120_000;
    let usual = [("tenant-a", 85.0), ("tenant-b", 120.0), ("tenant-c", 75.0), ("tenant-d", 45.0)];
    let measure = |times: f64| {
        let loads = usual.iter().enumerate().map(|(at, &(name, per_s))| {
            let per_s = if at == 0 { per_s * times } else { per_s };
            TenantLoad::new(name, SubmissionLoad::Paced(Workload::Constant { per_s }))
        });
        let scenario = SimulationScenario {
            duration_ms: FOR_MS + 10_000,
            warm_up_ms: 10_000,
            ..SimulationScenario::new(seed, loads.collect(), WorkerSupply::Fixed { workers })
        };
        super::super::run(&scenario)
    };
    let (before, during) = (measure(1.0), measure(10.0));
    let load = before.used.workers;
    // The numbers of submitted tasks are random. To remove this effect, multiplies the share of completed tasks by the
    // usual rate.
    let rows = before.tenants.iter().zip(&during.tenants).zip(&usual).enumerate();
    rows.map(|(at, ((before, during), &(name, per_s)))| {
        let throughput = |tenant: &crate::sim::outcome::TenantOutcome| {
            tenant.completed as f64 / tenant.submitted as f64 * per_s
        };
        let during_per_s =
            if at == 0 { during.completed as f64 * 1_000.0 / FOR_MS as f64 } else { throughput(during) };
        NoisyNeighbourRow { load, tenant: name.to_owned(), before_per_s: throughput(before), during_per_s }
    })
    .collect()
}
