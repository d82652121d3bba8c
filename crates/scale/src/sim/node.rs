//! What the node that schedules can do in a second, and how much of that was used.
//!
//! Every task costs it processor time, bytes of its log and of its network, and memory while it is known; of processor time, log and network there is
//! only so much in a step, and what does not fit waits. So a bottleneck is not looked up in a table: it is the resource that was used most.

/// A scheduling node, and the costs of a task there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Node {
    /// Groups that tenants are sharded over, each with a processor of its own.
    pub shards: u32,
    /// Processor time to take a task in.
    pub submit_us: f64,
    /// Processor time to give it to a worker and take its answer.
    pub dispatch_us: f64,
    /// Bytes that it adds to the log in all.
    pub log_bytes: f64,
    /// Bytes that the log takes in a second.
    pub log_bytes_per_s: f64,
    /// Bytes that it takes on the network in all.
    pub network_bytes: f64,
    /// Bytes that the network carries in a second.
    pub network_bytes_per_s: f64,
    /// Until a batch of commands is agreed on.
    pub commit_us: u64,
    /// From the node to a worker, and back.
    pub hop_us: u64,
    /// Bytes of memory.
    pub memory_bytes: f64,
}

impl Default for Node {
    /// Estimates, until a node runs the scheduler and can be measured; disk and network are those of the document's machines.
    fn default() -> Node {
        Node {
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

/// Shares of what there was, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Used {
    /// Of the scheduling processors.
    pub processor: f64,
    /// Of the log.
    pub log: f64,
    /// Of the network.
    pub network: f64,
    /// Of memory, at the most.
    pub memory: f64,
    /// Of the workers' time.
    pub workers: f64,
}

impl Used {
    /// What was used most, if that is four fifths or more of it.
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
