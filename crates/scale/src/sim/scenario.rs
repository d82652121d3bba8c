//! Scenarios of the simulator.

use dunlin_tasks::Quota;

use crate::policy::Policy;
use crate::simulated::ProviderDelays;

use super::node::SimulatedNode;
use super::workload::Workload;

/// The input of a simulation: its seed, duration, tenants, workers and node.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulationScenario {
    /// Seed of all random choices.
    pub seed: u64,
    /// The virtual time after which the run ends at the latest, in ms.
    pub duration_ms: u64,
    /// The number of completed tasks after which the run ends early.
    pub tasks_max: u64,
    /// The length of a step in ms. Commands that arrive within a step are processed together.
    pub step_ms: u64,
    /// The tenants and their loads.
    pub tenants: Vec<TenantLoad>,
    /// The distribution of the tasks' run times.
    pub service: ServiceTime,
    /// The number of tasks that the scheduler assigns to a worker at a time. The worker runs them one by one.
    pub credit: u32,
    /// The costs and capacities of the scheduling node.
    pub node: SimulatedNode,
    /// The workers: a fixed number, or a fleet.
    pub supply: WorkerSupply,
    /// The P99 of the waiting time, in ms, above which a minute counts as a violation.
    pub latency_ms_max: u64,
    /// The length of the warm-up, which is not counted, in ms.
    pub warm_up_ms: u64,
}

/// The run times of simulated tasks, evenly distributed around a mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServiceTime {
    /// The mean run time, µs.
    pub mean_us: f64,
    /// The largest deviation from the mean, as a share of the mean.
    pub spread: f64,
}

/// A simulated tenant: its weight, its quotas, and when it submits tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantLoad {
    /// The tenant's name.
    pub name: String,
    /// The tenant's weight.
    pub weight: u32,
    /// The tenant's quota of milli-processors.
    pub cpu_milli: Quota,
    /// The tenant's quota of memory, in bytes.
    pub memory_bytes: Quota,
    /// Milli-processors and bytes that each task needs.
    pub needs: (u32, u64),
    /// The tenant's workload.
    pub load: SubmissionLoad,
}

/// The load that a simulated tenant submits: tasks at a mean rate, or enough tasks to keep a given number waiting.
#[derive(Debug, Clone, PartialEq)]
pub enum SubmissionLoad {
    /// Random arrivals with a mean rate.
    Paced(Workload),
    /// The tenant submits tasks so that the number of waiting tasks stays constant.
    Saturated {
        /// The number of tasks that wait at any time.
        waiting: u64,
    },
}

/// The workers of a simulation: a fixed number, or a fleet that a scaler controls.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerSupply {
    /// A fixed number of workers.
    Fixed {
        /// Number of workers.
        workers: u32,
    },
    /// A fleet whose size a scaler controls.
    ScaledFleet {
        /// The scaling policy of the fleet.
        policy: Box<Policy>,
        /// The provider's delays.
        delays: ProviderDelays,
        /// The interval between two samples of the scaler, in ms.
        sample_ms: u64,
        /// Number of workers at the start of the run.
        workers: u32,
        /// The time of day at the start of the run, in ms since 1970, for schedules.
        unix_ms: u64,
        /// Whether an oracle, which knows the future load, decides in place of the scaler.
        is_oracle: bool,
    },
}

impl TenantLoad {
    /// Creates a tenant of weight 1 without quotas.
    pub fn new(name: &str, load: SubmissionLoad) -> TenantLoad {
        TenantLoad {
            name: name.to_owned(),
            weight: 1,
            cpu_milli: Quota::default(),
            memory_bytes: Quota::default(),
            needs: (0, 0),
            load,
        }
    }
}

impl SimulationScenario {
    /// Creates a scenario in which a task takes 11.76 ms on average, so that a worker does 85 tasks per second, as in
    /// Dunlin's requirements.
    pub fn new(seed: u64, tenants: Vec<TenantLoad>, supply: WorkerSupply) -> SimulationScenario {
        SimulationScenario {
            seed,
            duration_ms: 60_000,
            tasks_max: u64::MAX,
            step_ms: 1,
            tenants,
            service: ServiceTime { mean_us: 11_760.0, spread: 0.1 },
            credit: 2,
            node: SimulatedNode::default(),
            supply,
            latency_ms_max: 2_000,
            warm_up_ms: 0,
        }
    }
}
