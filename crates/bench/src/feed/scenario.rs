//! Defines a scenario of suite `feed`: its instruments, its rates and its subscribers.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin::topic::WaitStrategy;
use dunlin_feed::{Instrument, Instruments, InstrumentsText};
use serde::{Deserialize, Serialize};

use crate::cores::CorePinning;

/// Where the subscribers run: in the node's process, or in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReaderPlacement {
    /// The subscribers run in the node's process.
    Inproc,
    /// The subscribers run in another process than the node, and each has its own connection.
    Tcp,
}

impl ReaderPlacement {
    /// Returns the value for the parameter `transport` of a measurement.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inproc => "inproc",
            Self::Tcp => "tcp",
        }
    }
}

impl WaitMode {
    /// Returns the value for the parameter `wait` of a measurement.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Default => "default",
            Self::Parked => "parked",
        }
    }

    /// Returns the option that gives a subscription or a client this wait mode.
    pub fn wait(self) -> WaitStrategy {
        match self {
            Self::Spin => WaitStrategy::Spin,
            Self::Default => WaitStrategy::Default,
            Self::Parked => WaitStrategy::Parked,
        }
    }
}

/// The method by which threads wait: spinning, parking, or first spinning and then parking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitMode {
    /// Threads spin and never park.
    Spin,
    /// Subscribers spin for a few µs, then park; listeners park.
    Default,
    /// Threads park immediately.
    Parked,
}

/// The settings of one feed measurement: instruments, rates, subscribers and duration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FeedScenario {
    /// The configuration of the instruments.
    pub config: InstrumentsText,
    /// The updates per second of each instrument; `None` for the rates in `config`.
    pub rate: Option<u32>,
    /// Where the subscribers run: in the node's process or in another process.
    pub placement: ReaderPlacement,
    /// Whether waiting threads spin or park.
    pub wait: WaitMode,
    /// The number of subscribers. Each of them subscribes to all of `instruments`.
    pub clients: usize,
    /// The instruments to which clients subscribe; if the list is empty, clients subscribe to all.
    pub instruments: Vec<String>,
    /// The number of price levels that a client shows. This number is only printed, because the benchmark document of
    /// MDD-Sim (another system) prints it. No result depends on it.
    pub depth: usize,
    /// The duration of the warm-up at the start of the run. Updates that are due during the warm-up do not count.
    pub warmup: Duration,
    /// The duration of the part of the run in which updates count. This part follows the warm-up.
    pub time: Duration,
    /// How long a slow subscriber sleeps after each message; `None` for no sleep.
    pub delay: Option<Duration>,
    /// Whether subscribers use conflation: each read returns one record, which merges all updates since the last read.
    pub conflate: bool,
    /// Simulates losses: withholds every nth record from the subscribers; `None` withholds no record.
    pub test_loss_every: Option<NonZeroU32>,
    /// Whether subscribers start at the first record and receive every record, even when they are far behind.
    pub every_record: bool,
    /// The most records that a topic retains; `None` for no such limit.
    pub history_records: Option<u64>,
    /// The most bytes that a topic retains.
    pub history_bytes: u64,
    /// The seed of the random updates.
    pub seed: u64,
}

impl FeedScenario {
    /// Returns the instruments, with the rate of this scenario.
    pub fn instruments(&self) -> Result<Instruments> {
        let instruments = self.config.parse()?;
        match self.rate {
            Some(rate) => Ok(instruments.at_rate(rate)?),
            None => Ok(instruments),
        }
    }

    /// Returns how threads are pinned to cores. If threads spin, the subscribers have one core, and the source and the
    /// listeners share another core.
    pub fn pin(&self) -> CorePinning {
        if self.wait == WaitMode::Spin { CorePinning::Apart } else { CorePinning::Free }
    }

    /// Returns the patterns to which the subscribers subscribe. Returns an error if an instrument does not exist.
    pub fn patterns(&self, instruments: &Instruments) -> Result<Vec<String>> {
        let topic = |id: &String| {
            let known = instruments.list().iter().find(|known| known.id == *id);
            known.map(Instrument::topic).with_context(|| format!("unknown instrument {id}"))
        };
        match self.instruments.as_slice() {
            [] if instruments.list().len() == 1 => Ok(vec![instruments.list()[0].topic()]),
            [] => Ok(vec!["md.>".to_owned()]),
            some => some.iter().map(topic).collect(),
        }
    }
}

/// The times of one run, in ns: when the source starts, from when updates count, and when the source ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MeasuringWindow {
    /// The time at which the source starts.
    pub start_ns: u64,
    /// The time from which updates are counted.
    pub from_ns: u64,
    /// The time at which the source ends.
    pub until_ns: u64,
}

impl MeasuringWindow {
    /// A window in which no update counts.
    pub const NEVER: Self = Self { start_ns: 0, from_ns: 0, until_ns: 0 };

    /// Returns the window of a run that starts at `start_ns`.
    pub fn from(start_ns: u64, scenario: &FeedScenario) -> Self {
        let from_ns = start_ns + scenario.warmup.as_nanos() as u64;
        Self { start_ns, from_ns, until_ns: from_ns + scenario.time.as_nanos() as u64 }
    }

    /// Whether an update counts if it is due at this time.
    pub fn counts(&self, event_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&event_ns)
    }
}
