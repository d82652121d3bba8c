//! Starts Dunlin's nodes as suite `control` does: each node is a process with a data directory on a real disk. Waits
//! until the nodes agree on the leaders of the task scheduler.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::work::TaskWorkload;
use crate::child::{Child, TIMEOUT};
use crate::control::clients::StoreConnection;
use crate::control::cluster::MeasuredCluster;
use crate::control::ours::OwnCluster;
use crate::point::BenchContext;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The size of a cluster: its number of nodes, and its number of task shards (`tasks.shards`).
#[derive(Clone, Copy, Debug)]
pub struct ClusterSize {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of task shards.
    pub shards: u8,
}

impl ClusterSize {
    /// Returns the size of a cluster with `nodes` nodes and a single task shard.
    pub const fn of(nodes: usize) -> Self {
        Self { nodes, shards: 1 }
    }
}

/// A running cluster that serves submitters and workers. Dropping the handle kills the nodes.
#[derive(Debug)]
pub struct TaskNodes {
    nodes: OwnCluster,
    url: String,
}

impl TaskNodes {
    /// Starts the nodes, and waits until they agree on the leaders of all shards.
    pub fn start(bench: &BenchContext, size: ClusterSize) -> Result<Self> {
        let nodes = OwnCluster::with_shards(bench, size.nodes, size.shards)?;
        let (_, url) = wait_for_agreement(&nodes)?;
        Ok(Self { nodes, url })
    }

    /// Waits until all nodes are voters and agree on the leaders of all shards. Returns the index of the node that
    /// leads the first shard.
    pub fn leader(&self) -> Result<usize> {
        wait_for_agreement(&self.nodes).map(|(leader, _)| leader)
    }

    /// Returns a URL with the addresses of all nodes' listeners.
    pub fn listeners(&self) -> Result<String> {
        let listeners = block_on(async {
            let mut listeners = Vec::new();
            for endpoint in self.nodes.endpoints() {
                listeners.push(StoreConnection::new(&endpoint).usage().await?.listener.to_string());
            }
            anyhow::Ok(listeners)
        })?;
        Ok(format!("dunlin://{}", listeners?.join(",")))
    }

    /// Kills the node with index `nth`.
    pub fn kill(&mut self, nth: usize) -> Result<()> {
        self.nodes.kill(nth)
    }

    /// Restarts the node with index `nth`, which still has its data on disk.
    pub fn restart(&mut self, bench: &BenchContext, nth: usize) -> Result<()> {
        self.nodes.restart(bench, nth)
    }

    /// Starts a process with submitters and workers. They connect to the node that led the first shard at the start.
    pub fn clients(&self, bench: &BenchContext, work: &TaskWorkload) -> Result<Child> {
        let mut work = work.clone();
        work.ours.url.clone_from(&self.url);
        bench.child.start("tasks-clients", &[("work", serde_json::to_string(&work)?)])
    }

    /// Returns the processor time that all nodes have used, in ns.
    pub fn cpu_ns(&self) -> Result<u64> {
        self.nodes.processes().iter().map(|process| cpu_ns_of(*process)).sum()
    }

    /// Returns the memory that all nodes use, in bytes.
    pub fn memory_bytes(&self) -> Result<u64> {
        self.nodes.processes().iter().map(|process| memory_bytes_of(*process)).sum()
    }
}

fn block_on<R>(future: impl Future<Output = R>) -> Result<R> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(future))
}

fn wait_for_agreement(nodes: &OwnCluster) -> Result<(usize, String)> {
    block_on(leader(&nodes.endpoints()))?
}

/// Waits until all nodes agree on the leaders of all shards, and each node is a voter in each shard. Returns the index
/// of the node that leads the first shard, and the URL of its listener.
async fn leader(endpoints: &[String]) -> Result<(usize, String)> {
    let nodes: Vec<_> = endpoints.iter().map(|endpoint| StoreConnection::new(endpoint)).collect();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let error = match leader_and_url(&nodes).await {
            Ok(leader) => return Ok(leader),
            Err(error) => error,
        };
        ensure!(
            Instant::now() < deadline,
            "the tasks' Raft group had no leader within {TIMEOUT:?}: {error:#}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn leader_and_url(nodes: &[StoreConnection]) -> Result<(usize, String)> {
    let mut leaders: Option<Vec<u64>> = None;
    for node in nodes {
        let usage = node.usage().await?;
        let Some(shards) = usage.tasks else { bail!("a node does not take part in the tasks' Raft group") };
        let voters = shards.iter().map(|(_, voters)| *voters).min().unwrap_or(0);
        ensure!(voters == nodes.len(), "unexpected number of voters: {voters}");
        let shard_leaders: Vec<u64> = shards.into_iter().map(|(leader, _)| leader).collect();
        let is_same = leaders.as_ref().is_none_or(|before| *before == shard_leaders);
        ensure!(is_same, "the nodes report different leaders");
        leaders = Some(shard_leaders);
    }
    let leaders = leaders.context("the cluster has no node")?;
    let leader = *leaders.first().context("the node reports no shard of the tasks")? as usize - 1;
    let node = nodes.get(leader).context("the leader is not a node of this benchmark")?;
    Ok((leader, format!("dunlin://{}", node.usage().await?.listener)))
}

/// The unit in which the kernel counts a process's processor time, in ns.
const TICK_NS: u64 = 10_000_000;

fn cpu_ns_of(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The second field, the name of the process, may contain spaces. Fields are therefore counted from the parenthesis
    // that closes the name. The user time and the system time, fields 14 and 15 of the file, are the twelfth and the
    // thirteenth field after this parenthesis.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = ticks(11).zip(ticks(12)).with_context(|| format!("{path} has an unknown format"))?;
    Ok((ticks.0 + ticks.1) * TICK_NS)
}

fn memory_bytes_of(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} has no VmRSS"))? * 1024)
}
