//! The source of a scenario, and its totals.

use anyhow::{Context, Result};
use dunlin::topic::Publisher;
use dunlin::{Node, Simulation, now_ns};
use dunlin_feed::Instruments;
use serde::{Deserialize, Serialize};

use crate::clock::processor_ns;
use crate::feed::scenario::{FeedScenario, MeasuringWindow, WaitMode};
use crate::feed::timed::{PublishTimes, TimedPublisher};

/// Spin time of a source whose subscribers spin: it sleeps almost until the due time and leaves them the
/// core.
const SPIN_NS_AMONG_SPINNERS: u64 = 2_000;

/// The number of records published for one instrument, and the checksum of its final book.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstrumentTotals {
    /// Name of the topic.
    pub topic: String,
    /// Records published in all.
    pub last_seq: u64,
    /// Records intended for the counted part.
    pub due: u64,
    /// Checksum of the last state.
    pub checksum: u64,
}

/// The number of records that a publisher sent in one run, with its delays and processor time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceTotals {
    /// Totals of each instrument.
    pub lines: Vec<InstrumentTotals>,
    /// Longest delay of a counted record, ns.
    pub slip_ns_max: u64,
    /// Delay of the very last record, ns.
    pub slip_ns_last: u64,
    /// From the start of the counted part to the last publication, ns.
    pub elapsed_ns: u64,
    /// Processor time of the whole process during `elapsed_ns`, ns.
    pub processor_ns: u64,
    /// Time of a publish, 99th percentile, ns.
    pub publish_ns_p99: Option<u64>,
}

impl SourceTotals {
    /// Number of counted records of all instruments.
    pub fn due(&self) -> u64 {
        self.lines.iter().map(|line| line.due).sum()
    }
}

/// A publisher of simulated order books that is ready to start.
#[derive(Debug)]
pub struct FeedSource {
    node: Node,
    instruments: Instruments,
    seed: u64,
    spin_ns: Option<u64>,
}

impl FeedSource {
    /// Creates a source for existing topics.
    pub fn new(node: &Node, scenario: &FeedScenario, instruments: Instruments) -> Self {
        let spin_ns = (scenario.wait == WaitMode::Spin).then_some(SPIN_NS_AMONG_SPINNERS);
        Self { node: node.clone(), instruments, seed: scenario.seed, spin_ns }
    }

    /// Publishes until the window ends.
    pub fn run(self, window: &MeasuringWindow) -> Result<SourceTotals> {
        let times = PublishTimes::default();
        let publishers = self.publishers(&times)?;
        let mut simulation = Simulation::open(&self.instruments, self.seed, window.start_ns, publishers)
            .context("cannot publish the complete books")?;
        if let Some(spin_ns) = self.spin_ns {
            simulation = simulation.spinning(spin_ns);
        }
        simulation.run_until(window.from_ns, || false)?;
        times.take();
        let of = |simulation: &Simulation<TimedPublisher<Publisher>>| -> Vec<u64> {
            (0..self.instruments.list().len()).map(|nth| simulation.published(nth)).collect()
        };
        let (before, before_ns) = (of(&simulation), processor_ns());
        let ran = simulation.run_until(window.until_ns, || false)?;
        let (elapsed_ns, processor_ns) =
            (now_ns().saturating_sub(window.from_ns), processor_ns() - before_ns);
        let lines = self.lines(&before, &of(&simulation))?;
        let (slip_ns_max, slip_ns_last) = (ran.late_ns_max, ran.late_ns_last);
        let publish_ns_p99 = times.borrow().quantile_ns(0.99);
        Ok(SourceTotals { lines, slip_ns_max, slip_ns_last, elapsed_ns, processor_ns, publish_ns_p99 })
    }

    fn publishers(&self, times: &PublishTimes) -> Result<Vec<TimedPublisher<Publisher>>> {
        let publisher = |topic: String| {
            let publisher =
                self.node.publisher(&topic).with_context(|| format!("cannot publish to {topic}"))?;
            Ok(TimedPublisher::new(publisher, times))
        };
        self.instruments.list().iter().map(|instrument| publisher(instrument.topic())).collect()
    }

    fn lines(&self, before: &[u64], after: &[u64]) -> Result<Vec<InstrumentTotals>> {
        let line = |(nth, topic): (usize, String)| {
            let checksum = checksum(&self.node, &topic)?;
            Ok(InstrumentTotals { topic, last_seq: after[nth], due: after[nth] - before[nth], checksum })
        };
        self.instruments.list().iter().map(|instrument| instrument.topic()).enumerate().map(line).collect()
    }
}

/// Checksum of a topic's state.
fn checksum(node: &Node, topic: &str) -> Result<u64> {
    let there = node.topic(topic).with_context(|| format!("topic {topic} does not exist"))?;
    let info = there.logs()[0].state_info();
    Ok(info.with_context(|| format!("topic {topic} keeps no state"))?.1.checksum)
}
