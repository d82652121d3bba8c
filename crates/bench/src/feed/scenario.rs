//! What is measured: which instruments are published how fast, and who reads them how.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin::topic::Wait;
use dunlin_feed::{Instrument, Instruments, InstrumentsText};
use serde::{Deserialize, Serialize};

use crate::cores::Pin;

/// Where the readers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// In the node's own process.
    Inproc,
    /// In another process, each with a connection of its own.
    Tcp,
}

impl Place {
    /// The parameter's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inproc => "inproc",
            Self::Tcp => "tcp",
        }
    }
}

impl Waiting {
    /// The parameter's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Default => "default",
            Self::Parked => "parked",
        }
    }

    /// The same for a subscription or a client.
    pub fn wait(self) -> Wait {
        match self {
            Self::Spin => Wait::Spin,
            Self::Default => Wait::Default,
            Self::Parked => Wait::Parked,
        }
    }
}

/// How readers, and the node's doors, wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Never parks.
    Spin,
    /// Readers spin for a few µs, then park; the doors park.
    Default,
    /// Parks at once.
    Parked,
}

/// One scenario, as both processes of it know it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scenario {
    /// The instruments.
    pub config: InstrumentsText,
    /// Every instrument's updates a second, whatever the configuration says.
    pub rate: Option<u32>,
    /// Where the readers are.
    pub place: Place,
    /// How everybody waits.
    pub wait: Waiting,
    /// Readers, each of every instrument that `instruments` names.
    pub clients: usize,
    /// What is subscribed to; all when empty.
    pub instruments: Vec<String>,
    /// Levels that a view would show. As in the document, nothing depends on it.
    pub depth: usize,
    /// What comes first and is not counted.
    pub warmup: Duration,
    /// What is counted.
    pub time: Duration,
    /// What a reader takes over each message before it applies it.
    pub delay: Option<Duration>,
    /// Readers get one merged update a read.
    pub conflate: bool,
    /// Every so manyth record is withheld from the readers.
    pub drop_every_n: Option<NonZeroU32>,
    /// Readers begin with the first record and are given every one, however far they are behind.
    pub every_record: bool,
    /// Records a topic keeps, where that matters.
    pub history_records: Option<u64>,
    /// Bytes a topic keeps.
    pub history_bytes: u64,
    /// What the random updates begin with.
    pub seed: u64,
}

impl Scenario {
    /// The instruments, each at its rate.
    pub fn instruments(&self) -> Result<Instruments> {
        let instruments = self.config.parse()?;
        match self.rate {
            Some(rate) => Ok(instruments.at_rate(rate)?),
            None => Ok(instruments),
        }
    }

    /// Who spins has a core: the readers one, the source and a node's doors another.
    pub fn pin(&self) -> Pin {
        if self.wait == Waiting::Spin { Pin::Apart } else { Pin::Free }
    }

    /// What the readers subscribe to; an error for what is not there.
    pub fn patterns(&self, instruments: &Instruments) -> Result<Vec<String>> {
        let topic = |id: &String| {
            let known = instruments.list().iter().find(|known| known.id == *id);
            known.map(Instrument::topic).with_context(|| format!("there is no instrument {id}"))
        };
        match self.instruments.as_slice() {
            [] if instruments.list().len() == 1 => Ok(vec![instruments.list()[0].topic()]),
            [] => Ok(vec!["md.>".to_owned()]),
            some => some.iter().map(topic).collect(),
        }
    }
}

/// The spans of one run, on the clock that records are stamped with.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Window {
    /// The source begins.
    pub start_ns: u64,
    /// What is meant to be published from here on is counted.
    pub from_ns: u64,
    /// The source ends.
    pub until_ns: u64,
}

impl Window {
    /// Nothing counts.
    pub const NEVER: Self = Self { start_ns: 0, from_ns: 0, until_ns: 0 };

    /// From `start_ns` on.
    pub fn from(start_ns: u64, scenario: &Scenario) -> Self {
        let from_ns = start_ns + scenario.warmup.as_nanos() as u64;
        Self { start_ns, from_ns, until_ns: from_ns + scenario.time.as_nanos() as u64 }
    }

    /// Whether what was meant for this time counts.
    pub fn counts(&self, event_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&event_ns)
    }
}
