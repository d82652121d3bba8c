//! What is simulated.

use dunlin_tasks::Quota;

use crate::policy::Policy;
use crate::simulated::Delays;

use super::node::Node;
use super::workload::Workload;

/// All that a run depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Seed of all random choices.
    pub seed: u64,
    /// How long it runs at most.
    pub duration_ms: u64,
    /// How many tasks are done before it ends, if that is sooner.
    pub tasks_max: u64,
    /// Commands are batched over so long.
    pub step_ms: u64,
    /// Who submits.
    pub tenants: Vec<TenantLoad>,
    /// How long tasks take.
    pub service: Service,
    /// Tasks that a worker is given at once; it does one at a time.
    pub credit: u32,
    /// The scheduling node.
    pub node: Node,
    /// Who works.
    pub crew: Crew,
    /// What the worst latency of a minute may be, as P99, before the minute is a violation.
    pub latency_ms_max: u64,
    /// What came before this is not counted.
    pub warm_up_ms: u64,
}

/// How long tasks take: the same for all, or evenly more or less by `spread`, a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Service {
    /// On average.
    pub mean_us: f64,
    /// At most so much more or less.
    pub spread: f64,
}

/// A tenant, and what it submits.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantLoad {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Of thousandths of a processor.
    pub cpu_milli: Quota,
    /// Of memory.
    pub memory_bytes: Quota,
    /// What a task needs of both.
    pub needs: (u32, u64),
    /// How much it submits.
    pub load: Load,
}

/// When tasks are submitted.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    /// At random, so many in a second on average.
    Paced(Workload),
    /// As many as it takes that so many always wait.
    Saturated {
        /// So many.
        waiting: u64,
    },
}

/// Who works.
#[derive(Debug, Clone, PartialEq)]
pub enum Crew {
    /// So many, from the beginning to the end.
    Fixed {
        /// So many.
        workers: u32,
    },
    /// As a scaler decides.
    Scaled {
        /// Its policy.
        policy: Box<Policy>,
        /// Its provider's.
        delays: Delays,
        /// It looks so often.
        sample_ms: u64,
        /// Workers at the beginning.
        workers: u32,
        /// What time 0 is, for schedules.
        unix_ms: u64,
        /// It is told what is to come, and not what is.
        is_oracle: bool,
    },
}

impl TenantLoad {
    /// One of weight 1, without quotas.
    pub fn new(name: &str, load: Load) -> TenantLoad {
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

impl Scenario {
    /// Of the document: 11.76 ms a task, so that a worker does 85 in a second.
    pub fn new(seed: u64, tenants: Vec<TenantLoad>, crew: Crew) -> Scenario {
        Scenario {
            seed,
            duration_ms: 60_000,
            tasks_max: u64::MAX,
            step_ms: 1,
            tenants,
            service: Service { mean_us: 11_760.0, spread: 0.1 },
            credit: 2,
            node: Node::default(),
            crew,
            latency_ms_max: 2_000,
            warm_up_ms: 0,
        }
    }
}
