//! Capacity of the scheduling node, and the used share of it.
//! Each task costs processor time, log and network bytes, and memory while the node knows it. Processor, log
//! and network have a budget per step, and work beyond the budget waits. The bottleneck is the resource with
//! the highest use.

/// The costs of a simulated scheduling node for each task: processor, log and network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedNode {
    /// Groups over which tenants are sharded, each with its own processor.
    pub shards: u32,
    /// Processor time to accept a task, µs.
    pub submit_us: f64,
    /// Processor time to dispatch a task and process its result, µs.
    pub dispatch_us: f64,
    /// Log bytes per task.
    pub log_bytes: f64,
    /// Log capacity, bytes per second.
    pub log_bytes_per_s: f64,
    /// Network bytes per task.
    pub network_bytes: f64,
    /// Network capacity, bytes per second.
    pub network_bytes_per_s: f64,
    /// Time until a batch of commands is committed, µs.
    pub commit_us: u64,
    /// One-way delay between node and worker, µs.
    pub hop_us: u64,
    /// Bytes of memory.
    pub memory_bytes: f64,
}

impl Default for SimulatedNode {
    /// Estimated costs; disk and network are those of the requirements' machines.
    fn default() -> SimulatedNode {
        SimulatedNode {
            shards: 1,
            submit_us: 1.0,
            dispatch_us: 3.0,
            log_bytes: 250.0,
            log_bytes_per_s: 125e6,
            network_bytes: 600.0,
            network_bytes_per_s: 1.56e9,
            commit_us: 500,
            hop_us: 150,
            memory_bytes: 16e9,
        }
    }
}

/// The utilization of each resource of a simulated node, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Utilization {
    /// Scheduling processors.
    pub processor: f64,
    /// The log.
    pub log: f64,
    /// The network.
    pub network: f64,
    /// Memory, at its peak.
    pub memory: f64,
    /// The workers' time.
    pub workers: f64,
}

impl Utilization {
    /// The resource with the highest use, if that is 0.8 or more.
    pub fn bottleneck(&self) -> &'static str {
        let all = [
            ("coordinator CPU", self.processor),
            ("log", self.log),
            ("network", self.network),
            ("coordinator memory", self.memory),
            ("workers", self.workers),
        ];
        let most = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.filter(|(_, used)| *used >= 0.8).map_or("none", |(name, _)| name)
    }
}
