//! Models the node that schedules tasks: its capacity, and how much of it is used.
//!
//! Each task costs processor time, log bytes and network bytes, and takes memory until it is completed. In each step of
//! the simulation, processor, log and network can do a limited amount of work; the rest waits for a later step. The
//! bottleneck is the resource with the highest use.

/// The costs that each task causes at a simulated node, and the capacity of this node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedNode {
    /// The number of shards into which the tenants are divided. Each shard has a scheduling processor of its own.
    pub shards: u32,
    /// The processor time that accepting a task takes, in µs.
    pub submit_us: f64,
    /// The processor time that dispatching a task and processing its result takes, in µs.
    pub dispatch_us: f64,
    /// The number of bytes that a task adds to the log.
    pub log_bytes: f64,
    /// The capacity of the log, in bytes per second.
    pub log_bytes_per_s: f64,
    /// The number of bytes that a task sends over the network.
    pub network_bytes: f64,
    /// The capacity of the network, in bytes per second.
    pub network_bytes_per_s: f64,
    /// How long it takes until a batch of commands is committed, in µs.
    pub commit_us: u64,
    /// How long a message takes from the node to a worker, or from a worker to the node, in µs.
    pub hop_us: u64,
    /// The node's memory, in bytes.
    pub memory_bytes: f64,
}

impl Default for SimulatedNode {
    /// Returns estimated costs. The disk and the network are those of the machines in Dunlin's requirements.
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

/// How much of each resource of a simulated node is used, as a share from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Utilization {
    /// The mean use of the processors that schedule tasks.
    pub processor: f64,
    /// The mean use of the log's capacity.
    pub log: f64,
    /// The mean use of the network's capacity.
    pub network: f64,
    /// The highest use of the memory.
    pub memory: f64,
    /// The share of the time in which the workers run tasks.
    pub workers: f64,
}

impl Utilization {
    /// Returns the name of the resource with the highest use; `none` if this use is below 0.8.
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
