//! Defines the scenarios of the simulator: the tenants and their tasks, the workers, and the node.

use dunlin_tasks::Quota;

use crate::policy::Policy;
use crate::simulated::ProviderDelays;

use super::node::SimulatedNode;
use super::workload::Workload;

/// The input of a simulation: its seed, its duration, its tenants, its workers and its node.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulationScenario {
    /// The seed from which all random numbers follow.
    pub seed: u64,
    /// The virtual time after which the run ends at the latest, in ms.
    pub duration_ms: u64,
    /// The number of completed tasks at which the run ends, even before `duration_ms`.
    pub tasks_max: u64,
    /// The length of a step of the simulation in ms. Commands that arrive within the same step are processed together.
    pub step_ms: u64,
    /// The tenants and their loads.
    pub tenants: Vec<TenantLoad>,
    /// How long the tasks run.
    pub service: ServiceTime,
    /// The number of tasks that a worker may hold at the same time. The worker runs them one after another.
    pub credit: u32,
    /// The costs that each task causes at the node that schedules tasks, and the capacity of this node.
    pub node: SimulatedNode,
    /// The workers: a fixed number, or a fleet that a scaler controls.
    pub supply: WorkerSupply,
    /// A minute counts as slow if the 99th percentile of the time from submission to start is above this, in ms.
    pub latency_ms_max: u64,
    /// The length of the warm-up at the start of the run, in ms. Nothing is measured during the warm-up.
    pub warm_up_ms: u64,
}

/// How long simulated tasks run. All times that differ from the mean by at most `spread` are equally likely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServiceTime {
    /// The mean run time in µs.
    pub mean_us: f64,
    /// How much a run time may differ from the mean, as a share of the mean.
    pub spread: f64,
}

/// A simulated tenant: its weight, its quotas, and the tasks that it submits.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantLoad {
    /// The name of the tenant.
    pub name: String,
    /// The weight of the tenant. The higher the weight, the larger is its share of the workers.
    pub weight: u32,
    /// The tenant's quota of processors, in thousandths of a processor.
    pub cpu_milli: Quota,
    /// The tenant's quota of memory, in bytes.
    pub memory_bytes: Quota,
    /// The needs of each task: thousandths of a processor, and bytes of memory.
    pub needs: (u32, u64),
    /// How many tasks the tenant submits.
    pub load: SubmissionLoad,
}

/// The load of a simulated tenant: tasks at a mean rate, or enough tasks that a given number always wait.
#[derive(Debug, Clone, PartialEq)]
pub enum SubmissionLoad {
    /// Tasks arrive at random times. The workload sets the mean rate.
    Paced(Workload),
    /// As many tasks arrive as are necessary to keep the number of waiting tasks constant.
    Saturated {
        /// The number of tasks that always wait.
        waiting: u64,
    },
}

/// The workers of a simulation: a fixed number, or a fleet that a scaler controls.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerSupply {
    /// A fixed number of workers.
    Fixed {
        /// The number of workers.
        workers: u32,
    },
    /// A fleet whose size a scaler controls.
    ScaledFleet {
        /// The scaling policy of the fleet.
        policy: Box<Policy>,
        /// The delays and failures of the fleet's provider.
        delays: ProviderDelays,
        /// The time between two samples that the scaler receives, in ms.
        sample_ms: u64,
        /// The number of workers at the start of the run.
        workers: u32,
        /// The time at the start of the run in ms since 1970, for schedules.
        unix_ms: u64,
        /// Whether an oracle that knows the future load decides, instead of a scaler that knows only its samples.
        is_oracle: bool,
    },
}

impl TenantLoad {
    /// Creates a tenant with weight 1 and without quotas.
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
    /// Creates a scenario with the tasks of Dunlin's requirements. A task takes 11.76 ms on average, so a worker
    /// completes 85 tasks per second.
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
