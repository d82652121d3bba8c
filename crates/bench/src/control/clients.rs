//! The clients of our cluster, which run in a separate process. For rivals, `peers/kv/load` does the same work.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use dunlin::state::{ControlCommand, ControlQuery, ControlReply, QueryAnswer};
use dunlin_client::{Client, ClientOptions, Kv};

use super::acknowledged::{self, ExpectedValues};
use super::frame;
use super::lanes;
use super::line::ConnectionHandle;
use super::node::NodeUsage;
use super::probe;
use super::session;
use super::watch;
use super::work::{ControlReport, ControlWork};
use crate::child::PATIENCE;
use crate::clock::monotonic_ns;
use crate::role::{RoleArgs, say};
use crate::stats::Latencies;

/// The most log entries by which an up-to-date follower may be behind the leader.
const BEHIND_MAX: u64 = 1_000;

/// The main function of the clients' process.
pub(crate) fn work(args: &RoleArgs) -> Result<()> {
    let work: ControlWork = serde_json::from_str(args.text("work")?)
        .context("cannot parse the workload from the parent process")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let nodes: Vec<StoreConnection> =
            work.endpoints.iter().map(|endpoint| StoreConnection::to(endpoint)).collect();
        if work.case == "probe" {
            return probe::answer(nodes).await;
        }
        let leader = leader(&nodes, None).await?;
        let connect = |nth: usize| match work.via.as_str() {
            "all" => StoreConnection::to(&work.endpoints[nth % work.endpoints.len()]),
            _ => StoreConnection::to(&work.endpoints[leader]),
        };
        let mut connections: Vec<StoreConnection> = (0..work.clients).map(connect).collect();
        for connection in &mut connections {
            connection.enter().await?;
        }
        let keeper = ExpectedValues::new(work.clone(), connections);
        let mut leader = nodes[leader].clone();
        leader.enter().await?;
        if work.case == "round_trip" {
            return say(&round_trips(&work, &nodes).await?);
        }
        let won = elections(&nodes).await?;
        let report = answer(&work, &leader, &keeper).await?;
        let (elections, links) = (elections(&nodes).await? - won, links(&nodes).await?);
        say(&ControlReport { elections, links, ..report })
    })
}

/// Carries out the described requests and returns the measurements.
async fn answer(
    work: &ControlWork,
    leader: &StoreConnection,
    keeper: &ExpectedValues,
) -> Result<ControlReport> {
    let begun_ns = monotonic_ns();
    match work.case.as_str() {
        "fill" => {
            keeper.load().await?;
            let elapsed_ns = monotonic_ns() - begun_ns;
            Ok(ControlReport { ops: work.keys as u64, elapsed_ns, ..ControlReport::default() })
        }
        "look" => {
            leader.query(&ControlQuery::Get { key: acknowledged::key_of(0).as_bytes() }).await?;
            let first_ns = monotonic_ns();
            keeper.look().await?;
            Ok(ControlReport { first_ns, ..ControlReport::default() })
        }
        "snapshot" => {
            keeper.load().await?;
            let (report, first_ns) = tokio::try_join!(lanes::run(keeper, work.rate), snapshot(leader))?;
            Ok(ControlReport { first_ns, ..report })
        }
        "watch" => watch::run(work, leader, keeper).await,
        "get" | "range" => {
            keeper.load().await?;
            loaded(work, leader, keeper).await
        }
        _ => {
            let report = loaded(work, leader, keeper).await?;
            keeper.verify().await?;
            Ok(report)
        }
    }
}

/// Measures requests at the peak rate, or at half of it.
async fn loaded(
    work: &ControlWork,
    leader: &StoreConnection,
    keeper: &ExpectedValues,
) -> Result<ControlReport> {
    let before = leader.seen().await?.last;
    let full = lanes::run(keeper, work.rate).await?;
    let entries = leader.seen().await?.last - before;
    if !work.half {
        let entries_per_s = entries as f64 * 1e9 / (work.warmup_ns + full.elapsed_ns) as f64;
        return Ok(ControlReport { entries_per_s, ..full });
    }
    let peak_per_s = full.ops as f64 * 1e9 / full.elapsed_ns as f64;
    leader.seen_anew().await?;
    // Waits for at least a few requests, even if the time is short.
    let rate = (peak_per_s / 2.0).max(10e9 / work.time_ns as f64);
    let half = lanes::run(keeper, rate).await?;
    let commit_avg_ns = leader.seen().await?.commit_ns;
    Ok(ControlReport { peak_per_s, commit_avg_ns, ..half })
}

/// Returns the number of elections that the nodes have won.
async fn elections(nodes: &[StoreConnection]) -> Result<u64> {
    let mut won = 0;
    for node in nodes {
        won += node.seen().await?.elections_ns.len() as u64;
    }
    Ok(won)
}

/// Returns the share of the requests between nodes that found an open connection.
async fn links(nodes: &[StoreConnection]) -> Result<f64> {
    let (mut asked, mut opened) = (0, 0);
    for node in nodes {
        let seen = node.seen().await?;
        (asked, opened) = (asked + seen.asked, opened + seen.opened);
    }
    Ok(if asked == 0 { 0.0 } else { asked.saturating_sub(opened) as f64 / asked as f64 })
}

/// Measures reads at a follower. Each takes two round trips between nodes: the follower asks the leader for
/// the read index, and the leader confirms that it still leads.
async fn round_trips(work: &ControlWork, nodes: &[StoreConnection]) -> Result<ControlReport> {
    let leads = leader(nodes, None).await?;
    let follower = nodes
        .iter()
        .enumerate()
        .find(|(nth, _)| *nth != leads)
        .context("the benchmark started only one node")?
        .1;
    let mut latencies = Latencies::default();
    let begun_ns = monotonic_ns();
    for _ in 0..work.keys {
        let took = follower.line.ask(frame::ROUND_TRIP, Bytes::new()).await?;
        latencies.record(u64::from_le_bytes(
            took.as_ref().try_into().context("the response does not have eight bytes")?,
        ));
    }
    Ok(ControlReport {
        ops: work.keys as u64,
        elapsed_ns: monotonic_ns() - begun_ns,
        ..ControlReport::default()
    }
    .with(&latencies))
}

/// Lets the leader take a snapshot. Returns the time from the request until the snapshot is on disk, in ns.
async fn snapshot(leader: &StoreConnection) -> Result<u64> {
    let before = leader.seen().await?.applied;
    let begun_ns = monotonic_ns();
    while leader.seen().await?.snapshot < before {
        ensure!(
            monotonic_ns() - begun_ns < PATIENCE.as_nanos() as u64,
            "the node made no snapshot within {PATIENCE:?}"
        );
        // The log's length may have started a snapshot. This request waits for its end, so that it is not measured.
        leader.line.ask(frame::SNAPSHOT, Bytes::new()).await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(monotonic_ns() - begun_ns)
}

/// A connection to a key-value node, by the benchmark's own protocol and, after `enter`, also by Dunlin's client.
#[derive(Clone, Debug)]
pub struct StoreConnection {
    line: ConnectionHandle,
    kv: Option<Kv>,
}

impl StoreConnection {
    /// Creates a client of a node.
    pub fn to(endpoint: &str) -> Self {
        let line = ConnectionHandle::to(endpoint.to_owned(), &tokio::runtime::Handle::current());
        Self { line, kv: None }
    }

    /// Connects to the node's listener `tcp`.
    pub async fn enter(&mut self) -> Result<()> {
        let listener = self.seen().await?.listener;
        let client = Client::connect(&format!("dunlin://{listener}"), ClientOptions::default())?;
        self.kv = Some(client.kv());
        Ok(())
    }

    fn kv(&self) -> Result<&Kv> {
        self.kv.as_ref().context("the node's address is missing")
    }

    /// Sends a command.
    pub async fn command(&self, command: &ControlCommand<'_>) -> Result<ControlReply> {
        Ok(self.kv()?.begin(command)?.answered().await?)
    }

    /// Sends a query.
    pub async fn query(&self, query: &ControlQuery<'_>) -> Result<QueryAnswer> {
        Ok(self.kv()?.begin_query(query)?.answered().await?)
    }

    /// Asks this node to propose a command once, even if it knows no leader.
    pub async fn propose(&self, command: &ControlCommand<'_>) -> Result<ControlReply> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        session::answered(&self.line.ask(frame::COMMAND, bytes.into()).await?)
    }

    /// Returns the state of the cluster according to the node.
    pub async fn seen(&self) -> Result<NodeUsage> {
        self.status(Bytes::new()).await
    }

    /// Returns the state of the cluster according to the node, which then resets its count of commits.
    pub async fn seen_anew(&self) -> Result<NodeUsage> {
        self.status(Bytes::from_static(b"anew")).await
    }

    async fn status(&self, body: Bytes) -> Result<NodeUsage> {
        let within = tokio::time::timeout(Duration::from_secs(1), self.line.ask(frame::STATUS, body));
        Ok(serde_json::from_slice(&within.await.context("a node does not respond")??)?)
    }
}

/// Waits until all nodes agree on the leader, are up to date, and count `voters` voters. Returns the index of the
/// leader.
pub async fn leader(nodes: &[StoreConnection], voters: Option<usize>) -> Result<usize> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let why = match agreed(nodes, voters).await {
            Ok(leader) => return Ok(leader),
            Err(why) => why,
        };
        ensure!(
            Instant::now() < deadline,
            "the nodes did not agree on a leader within {PATIENCE:?}: {why:#}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn agreed(nodes: &[StoreConnection], voters: Option<usize>) -> Result<usize> {
    let mut all: Vec<NodeUsage> = Vec::new();
    for node in nodes {
        all.push(node.seen().await?);
    }
    let last = all.iter().map(|seen| seen.last).max().unwrap_or(0);
    let Some(leader) = all[0].leader else { bail!("no node leads: {all:?}") };
    let agree = |seen: &NodeUsage| {
        seen.leader == Some(leader)
            && seen.applied + BEHIND_MAX >= last
            && voters.is_none_or(|voters| seen.voters == voters)
    };
    ensure!(all.iter().all(agree), "the nodes do not agree yet: {all:?}");
    Ok(leader as usize - 1)
}
