//! Simulates several tenants: the share that each receives, and the effect of a tenant that submits ten times as much
//! as usual.

use dunlin_tasks::Quota;

use crate::sim::scenario::{ServiceTime, SimulationScenario, SubmissionLoad, TenantLoad, WorkerSupply};
use crate::sim::workload::Workload;

/// The quotas of a simulated tenant, and the resources that the tenant's tasks used.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantRow {
    /// The tenant's name.
    pub tenant: String,
    /// The tenant's quota of cores.
    pub cpu_quota: f64,
    /// The tenant's quota of memory, in bytes.
    pub memory_quota: u64,
    /// Mean cores held by the tenant's tasks.
    pub cpu: f64,
    /// Mean memory held by the tenant's tasks, bytes.
    pub memory: u64,
    /// Whether the tenant's peak use of cores and its peak use of memory were within its quotas.
    pub is_compliant: bool,
}

const MILLI: u64 = 1_000;
const GB: u64 = 1_000_000_000;

/// Simulates the four tenants of Grey's benchmark document, which have quotas of 200, 150, 100 and 50 cores. Each tenant
/// submits more than its quota allows. Returns the tenants' rows and Jain's fairness index.
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

/// The simulated throughput of a tenant, before and while another tenant submits ten times as much.
#[derive(Debug, Clone, PartialEq)]
pub struct NoisyNeighbourRow {
    /// The share of all workers that the usual load occupies.
    pub load: f64,
    /// The tenant's name.
    pub tenant: String,
    /// Completed tasks per second before the first tenant submits more.
    pub before_per_s: f64,
    /// Completed tasks per second while the first tenant submits more.
    pub during_per_s: f64,
}

impl NoisyNeighbourRow {
    /// Returns the change of the tenant's throughput, as a share.
    pub fn change(&self) -> f64 {
        self.during_per_s / self.before_per_s - 1.0
    }
}

/// Runs two cases. In the first, the usual load needs 8 % of the workers, as in the requirements. In the
/// second, there are so few workers that the burst saturates them.
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
    // The number of submitted tasks varies randomly; the completed share does not.
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
