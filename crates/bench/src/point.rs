//! Measurements, groups of measurements, and suites.
//!
//! A measurement has a target and parameters. The measurements of a *group* are compared with each other. Each round
//! therefore runs every measurement of the group once, so that other load on the machine affects all alike. The
//! runner computes the medians of the runs.

use std::fmt;

use anyhow::Result;

use crate::child::ChildProgram;
use crate::goal::{Goal, PeerClaim, PeerFigure};
use crate::layout::CaseLayout;
use crate::options::BenchOptions;
use crate::params::Params;
use crate::peers::PeerPrograms;
use crate::row::RowSet;

/// Names of the measured systems.
pub mod target {
    /// Dunlin.
    pub const DUNLIN: &str = "dunlin";
    /// Debian's libzmq, with C programs.
    pub const LIBZMQ: &str = "libzmq";
    /// nats-server, with a client that moves raw bytes.
    pub const NATS: &str = "nats";
    /// Debian's Redis, with the same raw client as nats-server.
    pub const REDIS: &str = "redis";
    /// etcd, with its Go client.
    pub const ETCD: &str = "etcd";
    /// nats-server's key-value buckets, with nats.go.
    pub const JETSTREAM: &str = "jetstream";
    /// A plain tonic echo server.
    pub const TONIC: &str = "tonic";
    /// Bare sockets: the most that the machine can transfer between processes.
    pub const RAW: &str = "raw";
    /// The `rtrb` single-producer ring: the most that the machine can transfer within a process.
    pub const RTRB: &str = "rtrb";
    /// Our own journal on disk without a topic: the most that a durable topic can reach.
    pub const JOURNAL: &str = "journal";
    /// Tasks on Redis, with asynq, a Go library.
    pub const ASYNQ: &str = "asynq";
    /// Tasks on Redis, with Celery, a Python library.
    pub const CELERY: &str = "celery";
    /// Tasks of HyperQueue's own server.
    pub const HYPERQUEUE: &str = "hyperqueue";
    /// Collections of the standard library.
    pub const STD: &str = "std";
}

/// The environment that all measurements share: the options, the command that starts child processes, and the peers'
/// programs.
#[derive(Clone, Debug)]
pub struct BenchContext {
    /// Validated options.
    pub options: BenchOptions,
    /// The command that starts this program as a child process.
    pub child: ChildProgram,
    /// The programs of the peers.
    pub peers: PeerPrograms,
}

/// The figures that one run of a measurement produced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSample {
    /// Metric and value, in the order in which they were added.
    pub figures: Vec<(&'static str, f64)>,
}

impl RunSample {
    /// Creates an empty sample.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the sample with another figure.
    pub fn with(mut self, metric: &'static str, value: f64) -> Self {
        self.figures.push((metric, value));
        self
    }

    /// Returns the sample with another figure, if it was measured.
    pub fn with_optional(self, metric: &'static str, value: Option<f64>) -> Self {
        match value {
            Some(value) => self.with(metric, value),
            None => self,
        }
    }

    /// Returns the sample with another time in ns, if it was measured.
    pub fn with_time(self, metric: &'static str, ns: Option<u64>) -> Self {
        self.with_optional(metric, ns.map(|ns| ns as f64))
    }

    /// Returns the sample with all figures of another sample.
    pub fn and(mut self, other: Self) -> Self {
        self.figures.extend(other.figures);
        self
    }

    /// Returns the figure of a metric; `None` if the sample does not have it.
    pub fn get(&self, metric: &str) -> Option<f64> {
        self.figures.iter().find(|(known, _)| *known == metric).map(|(_, value)| *value)
    }
}

/// The error for something that a measurement needs and this machine lacks, such as another system, a data file or a
/// disk. The runner then skips the measurement.
#[derive(Clone, Debug)]
pub struct MissingPrerequisite(pub String);

impl fmt::Display for MissingPrerequisite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MissingPrerequisite {}

/// A function that makes one run of a measurement and returns its figures. The function must fail if a delivery is
/// missing or wrong, because the runner marks all figures as checked.
pub type MeasureFn = Box<dyn FnMut(&BenchContext) -> Result<RunSample>>;

/// A measurement that the runner can make repeatedly: the case, the system to measure, and the parameters.
pub struct Measurement {
    /// The case of the measurement.
    pub case: &'static str,
    /// Name of the target.
    pub target: &'static str,
    /// The parameters, which distinguish the measurement from others of the same case and target.
    pub params: Params,
    /// The function that makes one run.
    pub measure: MeasureFn,
}

impl Measurement {
    /// Creates a measurement.
    pub fn new(
        case: &'static str,
        target: &'static str,
        params: Params,
        measure: impl FnMut(&BenchContext) -> Result<RunSample> + 'static,
    ) -> Self {
        Self { case, target, params, measure: Box::new(measure) }
    }
}

impl fmt::Debug for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.case, self.target, self.params)
    }
}

/// Measurements to compare with each other; in each round, every one of them runs once.
pub type MeasurementGroup = Vec<Measurement>;

/// A benchmark suite: its cases, its measurements, its tables and its goals.
#[derive(Clone, Copy)]
pub struct Suite {
    /// Name, such as `spot`.
    pub name: &'static str,
    /// Cases, in the order in which they run.
    pub cases: &'static [&'static str],
    /// Creates the groups, with or without peers.
    pub groups: fn(&BenchOptions, with_peers: bool) -> Vec<MeasurementGroup>,
    /// Columns of the tables.
    pub layouts: &'static [CaseLayout],
    /// Goals that Dunlin sets itself.
    pub goals: &'static [Goal],
    /// Figures that the suite's benchmark document claims.
    pub claims: &'static [PeerClaim],
    /// Figures that peers are known to reach.
    pub peer_figures: &'static [PeerFigure],
    /// Returns the text that is printed in addition to the tables, in the format of the suite's document.
    pub blocks: fn(&RowSet) -> String,
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
