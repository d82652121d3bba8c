//! The worker processes of a measurement, as the parent process controls them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;

use super::delay::DelayRelay;
use super::node::{WorkerPort, WorldCommand, WorldReport};
use super::setting::WorldSetting;
use crate::child::{Child, PATIENCE};
use crate::point::Bench;

/// The running processes of one measured world. Dropping the handle kills all of them.
#[derive(Debug)]
pub struct WorldProcesses {
    pub setting: WorldSetting,
    children: Vec<Child>,
    _delays: Vec<DelayRelay>,
    /// The number of ticks that all workers have run.
    pub ticks: u64,
}

impl WorldProcesses {
    /// Starts the workers and inserts all entities. Each connection between workers has the round-trip time `rtt`.
    pub fn start(bench: &Bench, setting: WorldSetting, rtt: Duration) -> Result<Self> {
        let (mut children, mut delays, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        for number in 1..=setting.processes {
            let args = [
                ("setting", serde_json::to_string(&setting)?),
                ("process", number.to_string()),
                ("ports", serde_json::to_string(&ports)?),
            ];
            let mut child = bench.child.start("space-node", &args)?;
            let ready = child.text_line(PATIENCE)?;
            ensure!(ready == "READY", "worker {number} printed {ready:?} instead of READY");
            let WorkerPort { port } = child.line(PATIENCE)?;
            if rtt.is_zero() {
                ports.push(port);
            } else {
                let delay = DelayRelay::start(bench, port, rtt / 2)?;
                ports.push(delay.port());
                delays.push(delay);
            }
            children.push(child);
        }
        let mut workers = Self { setting, children, _delays: delays, ticks: 0 };
        let spawned: Vec<u64> = workers.all(&WorldCommand::Spawn)?;
        let all: u64 = spawned.iter().sum();
        ensure!(all == setting.entities, "{all} of {} entities were spawned", setting.entities);
        if setting.standby {
            drop(workers.all::<bool>(&WorldCommand::StandBy)?);
        }
        Ok(workers)
    }

    /// Sends a command to all workers, then reads all their responses.
    pub fn all<T: DeserializeOwned>(&mut self, order: &WorldCommand) -> Result<Vec<T>> {
        self.tell(order)?;
        self.children.iter_mut().map(|child| child.line(PATIENCE * 10)).collect()
    }

    fn tell(&mut self, order: &WorldCommand) -> Result<()> {
        self.children.iter_mut().try_for_each(|child| child.tell(order))
    }

    /// Runs ticks in all workers at intervals of `every_ns` (0: without pauses).
    pub fn run(&mut self, every_ns: u64, ticks: u64) -> Result<Vec<WorldReport>> {
        self.tell(&WorldCommand::Run { every_ns, ticks })?;
        self.ticks += ticks;
        self.children.iter_mut().map(seen).collect()
    }

    /// Sends a command to one worker, and reads its response.
    pub fn one<T: DeserializeOwned>(&mut self, worker: usize, order: &WorldCommand) -> Result<T> {
        let child = self.children.get_mut(worker).with_context(|| format!("there is no worker {worker}"))?;
        child.tell(order)?;
        child.line(PATIENCE * 10)
    }
}

/// Reads the result lines and the report of a run. Fails if they do not agree.
fn seen(child: &mut Child) -> Result<WorldReport> {
    let patience = PATIENCE * 10;
    let mut marker = |name: &str| -> Result<f64> {
        let line = child.text_line(patience)?;
        match line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")) {
            Some(value) => value.parse().with_context(|| line.clone()),
            None => bail!("a worker printed {line:?} instead of {name}"),
        }
    };
    let count = marker("MIGRATION_COUNT")?;
    let (_, _) = (marker("P99_LATENCY_MS")?, marker("HEAP_MB")?);
    let seen: WorldReport = child.line(patience)?;
    ensure!(
        count as u64 == seen.departed + seen.admitted,
        "the marker has {count} handovers, the report {seen:?}"
    );
    Ok(seen)
}
