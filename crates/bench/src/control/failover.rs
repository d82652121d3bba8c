//! Measures the time from the leader's death to the first successful write.
//!
//! Clients write to every node every few milliseconds, without waiting for earlier writes. The leader is killed. The
//! measurement ends when a write that began after the leader's death is acknowledged. Then the killed node is
//! restarted. When all nodes agree on a new leader and are up to date, the next measurement kills the new leader.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::cluster;
use super::work::ControlWorkload;
use crate::child::{Child, TIMEOUT};
use crate::clock::monotonic_ns;
use crate::point::{BenchContext, RunSample, target};
use crate::stats::Latencies;

/// A command to the clients that measure failovers. The program `peers/kv/load/probe.go` implements the same commands.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeCommand {
    /// Asks for the index of the leader.
    Leader(bool),
    /// Asks for the time of the first acknowledgement of a write that began after the given time. Both times are in ns.
    AfterNs(u64),
    /// Asks how long the election of the present leader took. Only for Dunlin.
    Elections(bool),
}

/// A client's response to a [`ProbeCommand`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeReply {
    /// The response to `ProbeCommand::Leader`: the index of the leader.
    Leader(usize),
    /// The response to `ProbeCommand::AfterNs`: the time in ns of the first acknowledgement of a write that began after
    /// the given time.
    AnsweredNs(u64),
    /// The response to `ProbeCommand::Elections`: how long the present leader's last election took, in ns. Empty if the
    /// leader does not respond.
    Elections(Vec<u64>),
}

/// Kills `kills` leaders, one after another, and measures the failover after each kill.
pub fn measure(bench: &BenchContext, target: &'static str, nodes: usize, kills: u64) -> Result<RunSample> {
    let mut cluster = cluster::start(bench, target, nodes)?;
    let mut clients = cluster.clients(bench, &ControlWorkload::probe())?;
    let (mut latencies, mut elections) = (Latencies::default(), Latencies::default());
    for _ in 0..kills {
        let leader = match request(&mut clients, ProbeCommand::Leader(true))? {
            ProbeReply::Leader(leader) => leader,
            reply => anyhow::bail!("unexpected response to a request for the leader: {reply:?}"),
        };
        let killed_ns = monotonic_ns();
        cluster.kill(leader)?;
        match request(&mut clients, ProbeCommand::AfterNs(monotonic_ns()))? {
            ProbeReply::AnsweredNs(answered_ns) => latencies.record(answered_ns - killed_ns),
            reply => anyhow::bail!("unexpected response to a write request: {reply:?}"),
        }
        if target == target::DUNLIN {
            // The response contains one election: the one that the present leader won after the kill.
            match request(&mut clients, ProbeCommand::Elections(true))? {
                ProbeReply::Elections(won) => won.into_iter().for_each(|ns| elections.record(ns)),
                reply => anyhow::bail!("unexpected response to a request for election times: {reply:?}"),
            }
        }
        cluster.restart(bench, leader)?;
    }
    let sample = latencies.sample().with("kills", kills as f64);
    if target != target::DUNLIN {
        return Ok(sample);
    }
    Ok(sample
        .with_optional("election_avg_ns", elections.mean_ns())
        .with_time("election_p99_ns", elections.quantile_ns(0.99))
        .with("elections", elections.count() as f64))
}

fn request(clients: &mut Child, command: ProbeCommand) -> Result<ProbeReply> {
    clients.write_line(&command)?;
    clients.read_line(2 * TIMEOUT)
}
