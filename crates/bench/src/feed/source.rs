//! The source of a scenario. The source publishes the scenario's updates, and returns totals of what it published.

use anyhow::{Context, Result};
use dunlin::topic::Publisher;
use dunlin::{Node, Simulation, now_ns};
use dunlin_feed::Instruments;
use serde::{Deserialize, Serialize};

use crate::clock::processor_ns;
use crate::feed::scenario::{FeedScenario, MeasuringWindow, WaitMode};
use crate::feed::timed::{PublishTimes, TimedPublisher};

/// For the case that subscribers spin: how long the source spins before each record is due, in ns. Before it spins, the
/// source sleeps, so that the subscribers can use the source's core.
const SPIN_NS_AMONG_SPINNERS: u64 = 2_000;

/// The totals of one instrument: how many records were published, and the checksum of the final book.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstrumentTotals {
    /// The name of the instrument's topic.
    pub topic: String,
    /// The number of all published records. This number is also the sequence number of the last record.
    pub last_seq: u64,
    /// The number of records that were due in the counted part of the run.
    pub due: u64,
    /// The checksum of the order book after the last record.
    pub checksum: u64,
}

/// The totals of one run's publisher: its records, its delays and its processor time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceTotals {
    /// The totals of each instrument.
    pub lines: Vec<InstrumentTotals>,
    /// The longest delay of a counted record: the time from when it was due until it was published, in ns.
    pub slip_ns_max: u64,
    /// The delay of the last record: the time from when it was due until it was published, in ns.
    pub slip_ns_last: u64,
    /// The time from the start of the counted part of the run to the last publication, in ns.
    pub elapsed_ns: u64,
    /// The processor time that the whole process used during `elapsed_ns`, in ns.
    pub processor_ns: u64,
    /// The 99th percentile of the time that a counted call of `send` took, in ns; `None` if there was no call.
    pub publish_ns_p99: Option<u64>,
}

impl SourceTotals {
    /// Returns the number of counted records, over all instruments.
    pub fn due(&self) -> u64 {
        self.lines.iter().map(|line| line.due).sum()
    }
}

/// A source that publishes simulated order books. The source has not started yet.
#[derive(Debug)]
pub struct FeedSource {
    node: Node,
    instruments: Instruments,
    seed: u64,
    spin_ns: Option<u64>,
}

impl FeedSource {
    /// Creates a source. The topics of `instruments` must exist.
    pub fn new(node: &Node, scenario: &FeedScenario, instruments: Instruments) -> Self {
        let spin_ns = (scenario.wait == WaitMode::Spin).then_some(SPIN_NS_AMONG_SPINNERS);
        Self { node: node.clone(), instruments, seed: scenario.seed, spin_ns }
    }

    /// Publishes every update when it is due, until the window ends. Returns the source's totals.
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
        let published = |simulation: &Simulation<TimedPublisher<Publisher>>| -> Vec<u64> {
            (0..self.instruments.list().len()).map(|nth| simulation.published(nth)).collect()
        };
        let (before, before_ns) = (published(&simulation), processor_ns());
        let ran = simulation.run_until(window.until_ns, || false)?;
        let (elapsed_ns, processor_ns) =
            (now_ns().saturating_sub(window.from_ns), processor_ns() - before_ns);
        let lines = self.lines(&before, &published(&simulation))?;
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

fn checksum(node: &Node, topic: &str) -> Result<u64> {
    let topic_handle = node.topic(topic).with_context(|| format!("topic {topic} does not exist"))?;
    let info = topic_handle.logs()[0].state_info();
    Ok(info.with_context(|| format!("topic {topic} keeps no state"))?.1.checksum)
}
