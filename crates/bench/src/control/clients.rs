//! Runs the clients that make requests to a cluster of Dunlin nodes. The clients run in a process of their own. For
//! peers, the program `peers/kv/load` does the same work.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use dunlin::state::{ControlCommand, ControlQuery, ControlQueryResult, ControlReply};
use dunlin_client::{Client, ClientOptions, Kv};

use super::acknowledged::{self, ExpectedValues};
use super::connection::ConnectionHandle;
use super::frame;
use super::lanes;
use super::node::MeasuredNodeStatus;
use super::probe;
use super::session;
use super::watch;
use super::work::{ControlReport, ControlWorkload};
use crate::child::TIMEOUT;
use crate::clock::monotonic_ns;
use crate::role::{RoleArgs, print_line};
use crate::stats::Latencies;

/// A follower is up to date if it is at most this many log entries behind the leader.
const BEHIND_MAX: u64 = 1_000;

pub(crate) fn run(args: &RoleArgs) -> Result<()> {
    let work: ControlWorkload = serde_json::from_str(args.text("work")?)
        .context("cannot parse the workload from the parent process")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let nodes: Vec<StoreConnection> =
            work.endpoints.iter().map(|endpoint| StoreConnection::new(endpoint)).collect();
        if work.case == "probe" {
            return probe::run(nodes).await;
        }
        let leader = wait_for_leader(&nodes, None).await?;
        let connect = |nth: usize| match work.via.as_str() {
            "all" => StoreConnection::new(&work.endpoints[nth % work.endpoints.len()]),
            _ => StoreConnection::new(&work.endpoints[leader]),
        };
        let mut connections: Vec<StoreConnection> = (0..work.clients).map(connect).collect();
        for connection in &mut connections {
            connection.connect_client().await?;
        }
        let values = ExpectedValues::new(work.clone(), connections);
        let mut leader = nodes[leader].clone();
        leader.connect_client().await?;
        if work.case == "round_trip" {
            return print_line(&round_trips(&work, &nodes).await?);
        }
        let won = count_elections(&nodes).await?;
        let report = run_case(&work, &leader, &values).await?;
        let (elections, links) = (count_elections(&nodes).await? - won, link_reuse_share(&nodes).await?);
        print_line(&ControlReport { elections, links, ..report })
    })
}

/// Makes the requests that `work` describes, and returns the measurements.
async fn run_case(
    work: &ControlWorkload,
    leader: &StoreConnection,
    values: &ExpectedValues,
) -> Result<ControlReport> {
    let start_ns = monotonic_ns();
    match work.case.as_str() {
        "fill" => {
            values.load().await?;
            let elapsed_ns = monotonic_ns() - start_ns;
            Ok(ControlReport { ops: work.keys as u64, elapsed_ns, ..ControlReport::default() })
        }
        "look" => {
            leader.query(&ControlQuery::Get { key: acknowledged::key_name(0).as_bytes() }).await?;
            let first_ns = monotonic_ns();
            values.verify_sample().await?;
            Ok(ControlReport { first_ns, ..ControlReport::default() })
        }
        "snapshot" => {
            values.load().await?;
            let (report, first_ns) = tokio::try_join!(lanes::run(values, work.rate), snapshot(leader))?;
            Ok(ControlReport { first_ns, ..report })
        }
        "watch" => watch::run(work, leader, values).await,
        "get" | "range" => {
            values.load().await?;
            run_load(work, leader, values).await
        }
        _ => {
            let report = run_load(work, leader, values).await?;
            values.verify().await?;
            Ok(report)
        }
    }
}

/// Makes the requests that `work` describes, and measures them. If `work.half` is set, then makes a second measurement
/// at half of the reached rate, and returns the second measurement.
async fn run_load(
    work: &ControlWorkload,
    leader: &StoreConnection,
    values: &ExpectedValues,
) -> Result<ControlReport> {
    let before = leader.usage().await?.last;
    let full = lanes::run(values, work.rate).await?;
    let entries = leader.usage().await?.last - before;
    if !work.half {
        let entries_per_s = entries as f64 * 1e9 / (work.warmup_ns + full.elapsed_ns) as f64;
        return Ok(ControlReport { entries_per_s, ..full });
    }
    let peak_per_s = full.ops as f64 * 1e9 / full.elapsed_ns as f64;
    leader.usage_and_reset().await?;
    // The rate allows at least ten requests in the measuring time, so that even a short measurement has some requests.
    let rate = (peak_per_s / 2.0).max(10e9 / work.time_ns as f64);
    let half = lanes::run(values, rate).await?;
    let commit_avg_ns = leader.usage().await?.commit_ns;
    Ok(ControlReport { peak_per_s, commit_avg_ns, ..half })
}

async fn count_elections(nodes: &[StoreConnection]) -> Result<u64> {
    let mut won = 0;
    for node in nodes {
        won += node.usage().await?.elections_ns.len() as u64;
    }
    Ok(won)
}

/// Returns the share of the requests between nodes that used an existing connection.
async fn link_reuse_share(nodes: &[StoreConnection]) -> Result<f64> {
    let (mut requests, mut opened) = (0, 0);
    for node in nodes {
        let usage = node.usage().await?;
        (requests, opened) = (requests + usage.asked, opened + usage.opened);
    }
    Ok(if requests == 0 { 0.0 } else { requests.saturating_sub(opened) as f64 / requests as f64 })
}

/// Measures reads at a follower. Each read takes two round trips between nodes: the follower asks the leader for the
/// read index, and the leader asks the other nodes whether it still leads.
async fn round_trips(work: &ControlWorkload, nodes: &[StoreConnection]) -> Result<ControlReport> {
    let leader = wait_for_leader(nodes, None).await?;
    let follower = nodes
        .iter()
        .enumerate()
        .find(|(nth, _)| *nth != leader)
        .context("the cluster has no follower: the benchmark started only one node")?
        .1;
    let mut latencies = Latencies::default();
    let start_ns = monotonic_ns();
    for _ in 0..work.keys {
        let latency = follower.connection.request(frame::ROUND_TRIP, Bytes::new()).await?;
        latencies.record(u64::from_le_bytes(
            latency.as_ref().try_into().context("the response does not have eight bytes")?,
        ));
    }
    Ok(ControlReport {
        ops: work.keys as u64,
        elapsed_ns: monotonic_ns() - start_ns,
        ..ControlReport::default()
    }
    .with(&latencies))
}

/// Asks the leader to take a snapshot. Returns the time in ns from the request until the snapshot is on disk. Repeats
/// the request if the leader was already taking another snapshot.
async fn snapshot(leader: &StoreConnection) -> Result<u64> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let before = leader.usage().await?;
        let start_ns = monotonic_ns();
        leader.connection.request(frame::SNAPSHOT, Bytes::new()).await?;
        let mut after = leader.usage().await?;
        while after.snapshot == before.snapshot {
            ensure!(Instant::now() < deadline, "the node made no snapshot within {TIMEOUT:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
            after = leader.usage().await?;
        }
        if after.snapshot >= before.applied {
            return Ok(monotonic_ns() - start_ns);
        }
        // When this request arrived, the leader was already taking a snapshot, because its log had become long. The
        // leader therefore ignored the request. The other snapshot lacks entries from before the request, so its time
        // does not count.
    }
}

/// A client's connection to a node, over the benchmark's own protocol. `connect_client` adds a connection through
/// Dunlin's client library to the same node.
#[derive(Clone, Debug)]
pub struct StoreConnection {
    connection: ConnectionHandle,
    kv: Option<Kv>,
}

impl StoreConnection {
    /// Connects to a node over the benchmark's own protocol.
    pub fn new(endpoint: &str) -> Self {
        let connection = ConnectionHandle::connect(endpoint.to_owned(), &tokio::runtime::Handle::current());
        Self { connection, kv: None }
    }

    /// Also connects to the same node through Dunlin's client library, at listener `tcp`.
    pub async fn connect_client(&mut self) -> Result<()> {
        let listener = self.usage().await?.listener;
        let client = Client::connect(&format!("dunlin://{listener}"), ClientOptions::default())?;
        self.kv = Some(client.kv());
        Ok(())
    }

    fn kv(&self) -> Result<&Kv> {
        self.kv.as_ref().context("the node's address is missing")
    }

    /// Sends a command through Dunlin's client, and returns the command's result.
    pub async fn command(&self, command: &ControlCommand<'_>) -> Result<ControlReply> {
        Ok(self.kv()?.begin(command)?.answered().await?)
    }

    /// Sends a query through Dunlin's client, and returns the query's result.
    pub async fn query(&self, query: &ControlQuery<'_>) -> Result<ControlQueryResult> {
        Ok(self.kv()?.begin_query(query)?.answered().await?)
    }

    /// Asks this node to propose a command to the cluster. The node is asked even if it knows no leader. Does not
    /// retry.
    pub async fn propose(&self, command: &ControlCommand<'_>) -> Result<ControlReply> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        session::decode_reply(&self.connection.request(frame::COMMAND, bytes.into()).await?)
    }

    /// Returns the node's status.
    pub async fn usage(&self) -> Result<MeasuredNodeStatus> {
        self.status(Bytes::new()).await
    }

    /// Returns the node's status. Afterwards, the node counts commits from zero.
    pub async fn usage_and_reset(&self) -> Result<MeasuredNodeStatus> {
        self.status(Bytes::from_static(b"anew")).await
    }

    async fn status(&self, body: Bytes) -> Result<MeasuredNodeStatus> {
        let within =
            tokio::time::timeout(Duration::from_secs(1), self.connection.request(frame::STATUS, body));
        Ok(serde_json::from_slice(&within.await.context("a node does not respond")??)?)
    }
}

/// Waits until all nodes agree on the leader and are up to date. If `voters` is given, every node must also report this
/// number of voters. Returns the index of the leader.
pub async fn wait_for_leader(nodes: &[StoreConnection], voters: Option<usize>) -> Result<usize> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let error = match agreed_leader(nodes, voters).await {
            Ok(leader) => return Ok(leader),
            Err(error) => error,
        };
        ensure!(
            Instant::now() < deadline,
            "the nodes did not agree on a leader within {TIMEOUT:?}: {error:#}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn agreed_leader(nodes: &[StoreConnection], voters: Option<usize>) -> Result<usize> {
    let mut all: Vec<MeasuredNodeStatus> = Vec::new();
    for node in nodes {
        all.push(node.usage().await?);
    }
    let last = all.iter().map(|usage| usage.last).max().unwrap_or(0);
    let Some(leader) = all[0].leader else { bail!("the first node knows no leader: {all:?}") };
    let agree = |usage: &MeasuredNodeStatus| {
        usage.leader == Some(leader)
            && usage.applied + BEHIND_MAX >= last
            && voters.is_none_or(|voters| usage.voters == voters)
    };
    ensure!(all.iter().all(agree), "the nodes differ in leader, voters or applied entries: {all:?}");
    Ok(leader as usize - 1)
}
