//! The source of a scenario, and what it tells of itself.

use anyhow::{Context, Result};
use dunlin::topic::Publisher;
use dunlin::{Node, Simulation, now_ns};
use dunlin_feed::Instruments;
use serde::{Deserialize, Serialize};

use crate::clock::processor_ns;
use crate::feed::scenario::{Scenario, Waiting, Window};
use crate::feed::timed::{Timed, Times};

/// A source whose readers spin leaves them the core: it sleeps until its time has come.
const SPIN_NS_AMONG_SPINNERS: u64 = 2_000;

/// What came of an instrument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Its topic.
    pub topic: String,
    /// Records published in all.
    pub last_seq: u64,
    /// Those that were meant for the time that counts.
    pub due: u64,
    /// What the state of the last adds up to.
    pub checksum: u64,
}

/// What came of the source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Published {
    /// Each instrument.
    pub lines: Vec<Line>,
    /// How late the latest record was published, of those that count.
    pub slip_ns_max: u64,
    /// How late the very last one was.
    pub slip_ns_last: u64,
    /// From the beginning of what counts until the last was published.
    pub elapsed_ns: u64,
    /// Processor time of the whole process over that.
    pub processor_ns: u64,
    /// How long a publish took, at most, 99 times of 100.
    pub publish_ns_p99: Option<u64>,
}

impl Published {
    /// Records of all instruments that were meant for the time that counts.
    pub fn due(&self) -> u64 {
        self.lines.iter().map(|line| line.due).sum()
    }
}

/// Everything that is published, once it begins.
#[derive(Debug)]
pub struct Source {
    node: Node,
    instruments: Instruments,
    seed: u64,
    spin_ns: Option<u64>,
}

impl Source {
    /// For topics that are there.
    pub fn new(node: &Node, scenario: &Scenario, instruments: Instruments) -> Self {
        let spin_ns = (scenario.wait == Waiting::Spin).then_some(SPIN_NS_AMONG_SPINNERS);
        Self { node: node.clone(), instruments, seed: scenario.seed, spin_ns }
    }

    /// Publishes until the window is over.
    pub fn run(self, window: &Window) -> Result<Published> {
        let times = Times::default();
        let publishers = self.publishers(&times)?;
        let mut simulation = Simulation::open(&self.instruments, self.seed, window.start_ns, publishers)
            .context("publishing the whole books")?;
        if let Some(spin_ns) = self.spin_ns {
            simulation = simulation.spinning(spin_ns);
        }
        simulation.run_until(window.from_ns, || false)?;
        times.take();
        let of = |simulation: &Simulation<Timed<Publisher>>| -> Vec<u64> {
            (0..self.instruments.list().len()).map(|nth| simulation.published(nth)).collect()
        };
        let (before, before_ns) = (of(&simulation), processor_ns());
        let ran = simulation.run_until(window.until_ns, || false)?;
        let (elapsed_ns, processor_ns) =
            (now_ns().saturating_sub(window.from_ns), processor_ns() - before_ns);
        let lines = self.lines(&before, &of(&simulation))?;
        let (slip_ns_max, slip_ns_last) = (ran.late_ns_max, ran.late_ns_last);
        let publish_ns_p99 = times.borrow().quantile_ns(0.99);
        Ok(Published { lines, slip_ns_max, slip_ns_last, elapsed_ns, processor_ns, publish_ns_p99 })
    }

    fn publishers(&self, times: &Times) -> Result<Vec<Timed<Publisher>>> {
        let publisher = |topic: String| {
            let publisher = self.node.publisher(&topic).with_context(|| format!("publishing to {topic}"))?;
            Ok(Timed::new(publisher, times))
        };
        self.instruments.list().iter().map(|instrument| publisher(instrument.topic())).collect()
    }

    fn lines(&self, before: &[u64], after: &[u64]) -> Result<Vec<Line>> {
        let line = |(nth, topic): (usize, String)| {
            let checksum = checksum(&self.node, &topic)?;
            Ok(Line { topic, last_seq: after[nth], due: after[nth] - before[nth], checksum })
        };
        self.instruments.list().iter().map(|instrument| instrument.topic()).enumerate().map(line).collect()
    }
}

/// What the state of a topic adds up to.
fn checksum(node: &Node, topic: &str) -> Result<u64> {
    let there = node.topic(topic).with_context(|| format!("topic {topic} is gone"))?;
    let info = there.logs()[0].fold_info();
    Ok(info.with_context(|| format!("topic {topic} keeps no state"))?.1.checksum)
}
