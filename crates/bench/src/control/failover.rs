//! From the leader's death to the first write that goes through.
//!
//! Clients write to every node all the time, one write a few milliseconds after another whatever became of those before. The leader is
//! killed; the first write that was asked for after its death and is acknowledged ends the measurement. Then the node is started
//! again, and the next leader dies when all nodes agree who that is and have what it has.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::cluster;
use super::work::Work;
use crate::child::{Child, PATIENCE};
use crate::clock::monotonic_ns;
use crate::point::{Bench, Sample, target};
use crate::stats::Latencies;

/// What the clients are asked; `peers/kv/load/probe.go` answers the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Who leads?
    Leader(bool),
    /// When was the first write acknowledged of those asked for after this?
    AfterNs(u64),
    /// How long did the elections take that were won? Of ours only.
    Elections(bool),
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// This node leads.
    Leader(usize),
    /// Then.
    AnsweredNs(u64),
    /// So long, ns.
    Elections(Vec<u64>),
}

/// Kills so many leaders, one after another.
pub fn measure(bench: &Bench, whose: &'static str, nodes: usize, kills: u64) -> Result<Sample> {
    let mut cluster = cluster::start(bench, whose, nodes)?;
    let mut clients = cluster.clients(bench, &Work::probe())?;
    let (mut latencies, mut elections) = (Latencies::default(), Latencies::default());
    for _ in 0..kills {
        let leader = match ask(&mut clients, Ask::Leader(true))? {
            Told::Leader(leader) => leader,
            told => anyhow::bail!("{told:?} where the leader was asked for"),
        };
        let killed_ns = monotonic_ns();
        cluster.kill(leader)?;
        match ask(&mut clients, Ask::AfterNs(monotonic_ns()))? {
            Told::AnsweredNs(answered_ns) => latencies.record(answered_ns - killed_ns),
            told => anyhow::bail!("{told:?} where a write was asked for"),
        }
        if whose == target::DUNLIN {
            // The dead are not asked: their elections were counted when they won.
            match ask(&mut clients, Ask::Elections(true))? {
                Told::Elections(won) => won.into_iter().for_each(|ns| elections.record(ns)),
                told => anyhow::bail!("{told:?} where elections were asked for"),
            }
        }
        cluster.restart(bench, leader)?;
    }
    let sample = latencies.sample().with("kills", kills as f64);
    if whose != target::DUNLIN {
        return Ok(sample);
    }
    Ok(sample
        .with_known("election_avg_ns", elections.mean_ns())
        .with_time("election_p99_ns", elections.quantile_ns(0.99))
        .with("elections", elections.count() as f64))
}

fn ask(clients: &mut Child, ask: Ask) -> Result<Told> {
    clients.tell(&ask)?;
    clients.line(2 * PATIENCE)
}
