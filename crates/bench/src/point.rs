//! Defines measurements, groups of measurements, and suites.
//!
//! A measurement has a target (the measured system) and parameters. The measurements of a *group* are compared with
//! each other. Every round runs each measurement of the group once. Other load on the machine therefore affects all
//! measurements of the group alike. The runner computes the median of each measurement's runs.

use std::fmt;

use anyhow::Result;

use crate::child::ChildProgram;
use crate::goal::{Goal, PeerClaim, PeerFigure};
use crate::layout::CaseLayout;
use crate::options::BenchOptions;
use crate::params::Params;
use crate::peers::PeerPrograms;
use crate::row::RowSet;

/// The names of the measured systems.
pub mod target {
    /// Dunlin.
    pub const DUNLIN: &str = "dunlin";
    /// libzmq as packaged by Debian, with programs in C.
    pub const LIBZMQ: &str = "libzmq";
    /// nats-server, with a client that writes and reads raw bytes.
    pub const NATS: &str = "nats";
    /// Redis as packaged by Debian, measured with the same raw client as nats-server.
    pub const REDIS: &str = "redis";
    /// etcd, with its Go client.
    pub const ETCD: &str = "etcd";
    /// The key-value buckets of nats-server's JetStream, with the client library nats.go.
    pub const JETSTREAM: &str = "jetstream";
    /// A plain echo server made with tonic.
    pub const TONIC: &str = "tonic";
    /// Bare sockets, which show the highest rate that the machine allows between processes.
    pub const RAW: &str = "raw";
    /// The ring `rtrb` for one producer and one consumer, which shows the highest rate that the machine allows within a
    /// process.
    pub const RTRB: &str = "rtrb";
    /// Dunlin's journal on disk, without a topic. Its rate is the highest rate that a durable topic can reach.
    pub const JOURNAL: &str = "journal";
    /// Tasks in Redis, with the Go library asynq.
    pub const ASYNQ: &str = "asynq";
    /// Tasks in Redis, with the Python library Celery.
    pub const CELERY: &str = "celery";
    /// Tasks in HyperQueue, which has a server of its own.
    pub const HYPERQUEUE: &str = "hyperqueue";
    /// Collections of Rust's standard library.
    pub const STD: &str = "std";
}

/// The environment that all measurements share: the options, the command that starts child processes, and the peers'
/// programs.
#[derive(Clone, Debug)]
pub struct BenchContext {
    /// The validated options.
    pub options: BenchOptions,
    /// The command that starts a child process of the benchmark.
    pub child: ChildProgram,
    /// The programs of the peers.
    pub peers: PeerPrograms,
}

/// The figures of one run of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSample {
    /// The figures, each with its metric, in the order in which they were added.
    pub figures: Vec<(&'static str, f64)>,
}

impl RunSample {
    /// Creates a sample without figures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns this sample with one more figure.
    pub fn with(mut self, metric: &'static str, value: f64) -> Self {
        self.figures.push((metric, value));
        self
    }

    /// Returns this sample with the figure `value` added. If `value` is `None`, returns the sample unchanged.
    pub fn with_optional(self, metric: &'static str, value: Option<f64>) -> Self {
        match value {
            Some(value) => self.with(metric, value),
            None => self,
        }
    }

    /// Returns this sample with the time `ns` added. If `ns` is `None`, returns the sample unchanged.
    pub fn with_time(self, metric: &'static str, ns: Option<u64>) -> Self {
        self.with_optional(metric, ns.map(|ns| ns as f64))
    }

    /// Returns this sample with all figures of `other` added.
    pub fn and(mut self, other: Self) -> Self {
        self.figures.extend(other.figures);
        self
    }

    /// Returns the figure of a metric; `None` if the sample has no such figure.
    pub fn get(&self, metric: &str) -> Option<f64> {
        self.figures.iter().find(|(known, _)| *known == metric).map(|(_, value)| *value)
    }
}

/// An error: the measurement needs something that this machine lacks, such as another system, a data file or a disk.
/// After this error, the runner skips the measurement.
#[derive(Clone, Debug)]
pub struct MissingPrerequisite(pub String);

impl fmt::Display for MissingPrerequisite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MissingPrerequisite {}

/// A function that makes one run of a measurement, and returns the run's figures. If a delivery is missing or wrong,
/// the function must return an error, because the runner marks all returned figures as checked.
pub type MeasureFn = Box<dyn FnMut(&BenchContext) -> Result<RunSample>>;

/// A measurement that can be run repeatedly: its case, its target (the system to measure) and its parameters.
pub struct Measurement {
    /// The case of the measurement.
    pub case: &'static str,
    /// The name of the target.
    pub target: &'static str,
    /// The parameters. Two measurements with the same case and target have different parameters.
    pub params: Params,
    /// The function that makes one run of the measurement.
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

/// Measurements that are compared with each other. Each round runs every measurement of the group once.
pub type MeasurementGroup = Vec<Measurement>;

/// A benchmark suite: its cases, its measurements, its tables and its goals.
#[derive(Clone, Copy)]
pub struct Suite {
    /// The name, such as `spot`.
    pub name: &'static str,
    /// The cases, in the order in which they run.
    pub cases: &'static [&'static str],
    /// Returns the groups of measurements. `with_peers` says whether to include measurements of other systems.
    pub groups: fn(&BenchOptions, with_peers: bool) -> Vec<MeasurementGroup>,
    /// The layouts of the tables.
    pub layouts: &'static [CaseLayout],
    /// The performance goals for Dunlin.
    pub goals: &'static [Goal],
    /// The figures that a benchmark document claims for another system.
    pub claims: &'static [PeerClaim],
    /// The figures that peers are known to reach.
    pub peer_figures: &'static [PeerFigure],
    /// Returns text to print in addition to the tables, in the format of another system's benchmark document.
    pub blocks: fn(&RowSet) -> String,
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
