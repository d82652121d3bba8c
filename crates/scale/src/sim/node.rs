//! The capacity of the simulated scheduling node, and the used share of it. Each task costs processor time, log bytes
//! and network bytes, and takes memory until it is completed. Processor, log and network have a budget in each step,
//! and work beyond the budget waits. The bottleneck is the resource with the highest use.

/// The costs of a simulated scheduling node for each task: processor, log and network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedNode {
    /// The number of shards over which tenants are distributed. Each shard is scheduled by a processor of its own.
    pub shards: u32,
    /// Processor time to accept a task, µs.
    pub submit_us: f64,
    /// Processor time to dispatch a task and process its result, µs.
    pub dispatch_us: f64,
    /// Bytes that a task adds to the log.
    pub log_bytes: f64,
    /// Log capacity, bytes per second.
    pub log_bytes_per_s: f64,
    /// Bytes that a task sends over the network.
    pub network_bytes: f64,
    /// Network capacity, bytes per second.
    pub network_bytes_per_s: f64,
    /// Time until a batch of commands is committed, µs.
    pub commit_us: u64,
    /// One-way delay between node and worker, µs.
    pub hop_us: u64,
    /// The node's memory, in bytes.
    pub memory_bytes: f64,
}

impl Default for SimulatedNode {
    /// Estimated costs; disk and network are those of the machines in Dunlin's requirements.
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
    /// The utilization of the scheduling processors.
    pub processor: f64,
    /// The utilization of the log's capacity.
    pub log: f64,
    /// The utilization of the network's capacity.
    pub network: f64,
    /// The peak utilization of the memory.
    pub memory: f64,
    /// The share of the workers' time in which they run tasks.
    pub workers: f64,
}

impl Utilization {
    /// Returns the name of the resource with the highest use; `none` if its use is below 0.8.
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
