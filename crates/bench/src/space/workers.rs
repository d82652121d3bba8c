//! Starts the worker processes of a measured world, and sends commands to them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;

use super::delay::DelayRelay;
use super::node::{WorkerPort, WorldCommand, WorldReport};
use super::setting::WorldSetting;
use crate::child::{Child, TIMEOUT};
use crate::point::BenchContext;

/// The worker processes of a measured world. Dropping the handle kills all of them.
#[derive(Debug)]
pub struct WorldProcesses {
    pub setting: WorldSetting,
    children: Vec<Child>,
    _delays: Vec<DelayRelay>,
    /// The number of ticks that the workers have run.
    pub ticks: u64,
}

impl WorldProcesses {
    /// Starts the workers, and lets them create all entities. Each connection between workers has the round-trip time
    /// `rtt`.
    pub fn start(bench: &BenchContext, setting: WorldSetting, rtt: Duration) -> Result<Self> {
        let (mut children, mut delays, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        for number in 1..=setting.processes {
            let args = [
                ("setting", serde_json::to_string(&setting)?),
                ("process", number.to_string()),
                ("ports", serde_json::to_string(&ports)?),
            ];
            let mut child = bench.child.start("space-node", &args)?;
            let ready = child.read_text_line(TIMEOUT)?;
            ensure!(ready == "READY", "worker {number} printed {ready:?} instead of READY");
            let WorkerPort { port } = child.read_line(TIMEOUT)?;
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
        let spawned: Vec<u64> = workers.send_to_all(&WorldCommand::Spawn)?;
        let all: u64 = spawned.iter().sum();
        ensure!(all == setting.entities, "{all} of {} entities were spawned", setting.entities);
        if setting.standby {
            drop(workers.send_to_all::<bool>(&WorldCommand::StandBy)?);
        }
        Ok(workers)
    }

    /// Sends a command to all workers, and then reads the response of each of them.
    pub fn send_to_all<T: DeserializeOwned>(&mut self, command: &WorldCommand) -> Result<Vec<T>> {
        self.broadcast(command)?;
        self.children.iter_mut().map(|child| child.read_line(TIMEOUT * 10)).collect()
    }

    fn broadcast(&mut self, command: &WorldCommand) -> Result<()> {
        self.children.iter_mut().try_for_each(|child| child.write_line(command))
    }

    /// Lets all workers run ticks, and returns their reports. `every_ns` is the time from one tick to the next, in ns;
    /// 0 for no pauses.
    pub fn run(&mut self, every_ns: u64, ticks: u64) -> Result<Vec<WorldReport>> {
        self.broadcast(&WorldCommand::Run { every_ns, ticks })?;
        self.ticks += ticks;
        self.children.iter_mut().map(read_report).collect()
    }

    /// Sends a command to one worker, and reads the worker's response.
    pub fn send_to<T: DeserializeOwned>(&mut self, worker: usize, command: &WorldCommand) -> Result<T> {
        let child = self.children.get_mut(worker).with_context(|| format!("there is no worker {worker}"))?;
        child.write_line(command)?;
        child.read_line(TIMEOUT * 10)
    }
}

/// Reads the lines with the results of a run, and the report that follows them. Returns an error if the number of
/// handovers in the lines differs from the number in the report.
fn read_report(child: &mut Child) -> Result<WorldReport> {
    let timeout = TIMEOUT * 10;
    let mut read_value = |name: &str| -> Result<f64> {
        let line = child.read_text_line(timeout)?;
        match line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")) {
            Some(value) => value.parse().with_context(|| line.clone()),
            None => bail!("a worker printed {line:?} instead of {name}"),
        }
    };
    let count = read_value("MIGRATION_COUNT")?;
    let (_, _) = (read_value("P99_LATENCY_MS")?, read_value("HEAP_MB")?);
    let report: WorldReport = child.read_line(timeout)?;
    ensure!(
        count as u64 == report.departed + report.admitted,
        "the worker printed {count} handovers, but its report has another number: {report:?}"
    );
    Ok(report)
}
