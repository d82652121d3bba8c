//! Scenarios: the instruments, their rates, and the subscribers.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin::topic::Wait;
use dunlin_feed::{Instrument, Instruments, InstrumentsText};
use serde::{Deserialize, Serialize};

use crate::cores::Pin;

/// Whether subscribers run in the node's process or in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReaderPlacement {
    /// The node's process.
    Inproc,
    /// Another process, with one connection for each subscriber.
    Tcp,
}

impl ReaderPlacement {
    /// Value of parameter `transport`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inproc => "inproc",
            Self::Tcp => "tcp",
        }
    }
}

impl WaitMode {
    /// Value of parameter `wait`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Default => "default",
            Self::Parked => "parked",
        }
    }

    /// The option for a subscription or a client.
    pub fn wait(self) -> Wait {
        match self {
            Self::Spin => Wait::Spin,
            Self::Default => Wait::Default,
            Self::Parked => Wait::Parked,
        }
    }
}

/// Whether waiting threads spin, park, or first spin and then park.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitMode {
    /// Spins, and never parks.
    Spin,
    /// Subscribers spin for a few µs, then park; listeners park.
    Default,
    /// Parks at once.
    Parked,
}

/// The settings of one feed measurement: instruments, rates, subscribers and duration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FeedScenario {
    /// The instruments.
    pub config: InstrumentsText,
    /// Updates a second of each instrument, instead of the configured rates.
    pub rate: Option<u32>,
    /// Process of the subscribers.
    pub place: ReaderPlacement,
    /// How threads wait.
    pub wait: WaitMode,
    /// Subscribers, each of all instruments in `instruments`.
    pub clients: usize,
    /// Instruments that are subscribed to; all if empty.
    pub instruments: Vec<String>,
    /// Levels of a view. The MDD-Sim document states the value, but no result depends on it.
    pub depth: usize,
    /// Uncounted start of the run.
    pub warmup: Duration,
    /// Counted part of the run.
    pub time: Duration,
    /// Time that a subscriber spends on each message before it applies it.
    pub delay: Option<Duration>,
    /// Whether each read gives one merged update.
    pub conflate: bool,
    /// Every nth record is withheld from subscribers.
    pub test_loss_every: Option<NonZeroU32>,
    /// Whether subscribers start with the first record and receive every record, however far behind.
    pub every_record: bool,
    /// Records that a topic retains, if limited.
    pub history_records: Option<u64>,
    /// Bytes that a topic retains.
    pub history_bytes: u64,
    /// Seed of random updates.
    pub seed: u64,
}

impl FeedScenario {
    /// The instruments with their rates.
    pub fn instruments(&self) -> Result<Instruments> {
        let instruments = self.config.parse()?;
        match self.rate {
            Some(rate) => Ok(instruments.at_rate(rate)?),
            None => Ok(instruments),
        }
    }

    /// Pins spinning threads: subscribers to one core, the source and listeners to another.
    pub fn pin(&self) -> Pin {
        if self.wait == WaitMode::Spin { Pin::Apart } else { Pin::Free }
    }

    /// Patterns of the subscribers; an unknown instrument is an error.
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

/// The times of one run: its start, the start of counting, and its end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MeasuringWindow {
    /// Start of the source.
    pub start_ns: u64,
    /// Start of the counted part.
    pub from_ns: u64,
    /// End of the source.
    pub until_ns: u64,
}

impl MeasuringWindow {
    /// A window that counts nothing.
    pub const NEVER: Self = Self { start_ns: 0, from_ns: 0, until_ns: 0 };

    /// A window from `start_ns` on.
    pub fn from(start_ns: u64, scenario: &FeedScenario) -> Self {
        let from_ns = start_ns + scenario.warmup.as_nanos() as u64;
        Self { start_ns, from_ns, until_ns: from_ns + scenario.time.as_nanos() as u64 }
    }

    /// Whether an update intended for this time counts.
    pub fn counts(&self, event_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&event_ns)
    }
}
