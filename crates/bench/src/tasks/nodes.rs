//! Nodes of ours that have agreed who leads their tasks, as suite `control` starts them: each a process of its own, on a real disk.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::work::Work;
use crate::child::{Child, PATIENCE};
use crate::control::clients::Connection;
use crate::control::cluster::Cluster;
use crate::control::ours::Ours;
use crate::point::Bench;

/// Between two looks whether they agree.
const LOOK: Duration = Duration::from_millis(10);

/// How many nodes, and in how many shards (`tasks.shards`) their tasks are.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Nodes.
    pub nodes: usize,
    /// Shards.
    pub shards: u8,
}

impl Size {
    /// So many nodes, and all tasks in one shard.
    pub const fn of(nodes: usize) -> Self {
        Self { nodes, shards: 1 }
    }
}

/// See the module. Gone when dropped.
#[derive(Debug)]
pub struct Nodes {
    nodes: Ours,
    url: String,
}

impl Nodes {
    /// So many.
    pub fn start(bench: &Bench, size: Size) -> Result<Self> {
        let nodes = Ours::sharded(bench, size.nodes, size.shards)?;
        let (_, url) = agreed_on(&nodes)?;
        Ok(Self { nodes, url })
    }

    /// Which node leads (of several shards, the first), once all agree again and each has a vote.
    pub fn leader(&self) -> Result<usize> {
        agreed_on(&self.nodes).map(|(leader, _)| leader)
    }

    /// The doors of all, as one address.
    pub fn doors(&self) -> Result<String> {
        let doors = on_a_runtime(async {
            let mut doors = Vec::new();
            for endpoint in self.nodes.endpoints() {
                doors.push(Connection::to(&endpoint).seen().await?.door.to_string());
            }
            anyhow::Ok(doors)
        })?;
        Ok(format!("dunlin://{}", doors?.join(",")))
    }

    /// Kills a node.
    pub fn kill(&mut self, nth: usize) -> Result<()> {
        self.nodes.kill(nth)
    }

    /// Starts it again over what it has on its disk.
    pub fn restart(&mut self, bench: &Bench, nth: usize) -> Result<()> {
        self.nodes.restart(bench, nth)
    }

    /// Starts submitters and workers in a process of their own, which speak with the node that leads.
    pub fn clients(&self, bench: &Bench, work: &Work) -> Result<Child> {
        let mut work = work.clone();
        work.ours.url.clone_from(&self.url);
        bench.child.start("tasks-clients", &[("work", serde_json::to_string(&work)?)])
    }

    /// What all nodes have taken of the processors.
    pub fn cpu_ns(&self) -> Result<u64> {
        self.nodes.processes().iter().map(|process| cpu_ns_of(*process)).sum()
    }

    /// What all nodes have in memory.
    pub fn memory_bytes(&self) -> Result<u64> {
        self.nodes.processes().iter().map(|process| memory_bytes_of(*process)).sum()
    }
}

fn on_a_runtime<R>(future: impl Future<Output = R>) -> Result<R> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(future))
}

fn agreed_on(nodes: &Ours) -> Result<(usize, String)> {
    on_a_runtime(leader(&nodes.endpoints()))?
}

/// Who leads the tasks of the first shard, and its door, once all agree about all shards and each has a vote in all.
async fn leader(endpoints: &[String]) -> Result<(usize, String)> {
    let nodes: Vec<_> = endpoints.iter().map(|endpoint| Connection::to(endpoint)).collect();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let why = match agreed(&nodes).await {
            Ok(leader) => return Ok(leader),
            Err(why) => why,
        };
        ensure!(Instant::now() < deadline, "nobody led the tasks within {PATIENCE:?}: {why:#}");
        tokio::time::sleep(LOOK).await;
    }
}

async fn agreed(nodes: &[Connection]) -> Result<(usize, String)> {
    let mut leaders: Option<Vec<u64>> = None;
    for node in nodes {
        let seen = node.seen().await?;
        let Some(shards) = seen.tasks else { bail!("not every node has its part in the tasks") };
        let voters = shards.iter().map(|(_, voters)| *voters).min().unwrap_or(0);
        ensure!(voters == nodes.len(), "{voters} nodes have a vote");
        let leads: Vec<u64> = shards.into_iter().map(|(leads, _)| leads).collect();
        let is_same = leaders.as_ref().is_none_or(|before| *before == leads);
        ensure!(is_same, "they differ in who leads");
        leaders = Some(leads);
    }
    let leaders = leaders.context("there is no node")?;
    let leader = *leaders.first().context("there is no shard")? as usize - 1;
    let node = nodes.get(leader).context("a leader that was not started")?;
    Ok((leader, format!("dunlin://{}", node.seen().await?.door)))
}

/// Of the kernel's clock, by which processes are charged.
const TICK_NS: u64 = 10_000_000;

fn cpu_ns_of(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // Behind its name, which may hold anything: the 14th and 15th field are the third's 12th and 13th.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = ticks(11).zip(ticks(12)).with_context(|| format!("{path} is not as it should be"))?;
    Ok((ticks.0 + ticks.1) * TICK_NS)
}

fn memory_bytes_of(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} has no VmRSS"))? * 1024)
}
