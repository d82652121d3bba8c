//! Points, in groups that run alternately, in suites.
//!
//! A *point* is a target with parameters. The points of a *group* are compared with each other, so each round
//! measures every point once: a noisy neighbour then affects all alike. A point reports one measurement; the
//! runner computes medians.

use std::fmt;

use anyhow::Result;

use crate::child::ChildProgram;
use crate::goal::{ClaimedFigure, Goal, PeerFigure};
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
    /// Debian's Redis, with the same client.
    pub const REDIS: &str = "redis";
    /// etcd, with its Go client.
    pub const ETCD: &str = "etcd";
    /// nats-server's key-value buckets, with nats.go.
    pub const JETSTREAM: &str = "jetstream";
    /// A plain tonic echo server.
    pub const TONIC: &str = "tonic";
    /// Bare sockets, the floor of the machine.
    pub const RAW: &str = "raw";
    /// The `rtrb` single-producer ring, the floor in process.
    pub const RTRB: &str = "rtrb";
    /// Our own log on disk without a topic, the floor of durable topics.
    pub const JOURNAL: &str = "journal";
    /// Tasks on Redis, with the Go library.
    pub const ASYNQ: &str = "asynq";
    /// Tasks on Redis, with the Python library.
    pub const CELERY: &str = "celery";
    /// Tasks of HyperQueue's own server.
    pub const HYPERQUEUE: &str = "hyperqueue";
    /// Collections of the standard library.
    pub const STD: &str = "std";
}

/// The environment that all measurements share: options, the start of child processes, and peers' programs.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Validated options.
    pub options: BenchOptions,
    /// How to start this program again as another process.
    pub child: ChildProgram,
    /// Folder of the peers.
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

    /// Adds a figure.
    pub fn with(mut self, metric: &'static str, value: f64) -> Self {
        self.figures.push((metric, value));
        self
    }

    /// Adds a figure, if it was measured.
    pub fn with_known(self, metric: &'static str, value: Option<f64>) -> Self {
        match value {
            Some(value) => self.with(metric, value),
            None => self,
        }
    }

    /// Adds a time in ns, if it was measured.
    pub fn with_time(self, metric: &'static str, ns: Option<u64>) -> Self {
        self.with_known(metric, ns.map(|ns| ns as f64))
    }

    /// Adds all figures of another sample.
    pub fn and(mut self, other: Self) -> Self {
        self.figures.extend(other.figures);
        self
    }

    /// Figure of a metric.
    pub fn get(&self, metric: &str) -> Option<f64> {
        self.figures.iter().find(|(known, _)| *known == metric).map(|(_, value)| *value)
    }
}

/// The error for another system that is not installed, whose measurement is then skipped.
#[derive(Clone, Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// A function that makes one run of a measurement and returns its figures.
/// The function must fail if a delivery was missing or wrong, because the runner marks its rows as checked.
pub type Measure = Box<dyn FnMut(&Bench) -> Result<RunSample>>;

/// One measurement to make: the system to measure, the case and the parameters.
pub struct MeasuringPoint {
    /// The case of the point.
    pub case: &'static str,
    /// Name of the target.
    pub target: &'static str,
    /// Parameters, which tell the point from others.
    pub params: Params,
    /// Measures once.
    pub measure: Measure,
}

impl MeasuringPoint {
    /// Creates a point.
    pub fn new(
        case: &'static str,
        target: &'static str,
        params: Params,
        measure: impl FnMut(&Bench) -> Result<RunSample> + 'static,
    ) -> Self {
        Self { case, target, params, measure: Box::new(measure) }
    }
}

impl fmt::Debug for MeasuringPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.case, self.target, self.params)
    }
}

/// Measurements to compare with each other; in each round, every one of them runs once.
pub type PointGroup = Vec<MeasuringPoint>;

/// A benchmark suite: its cases, its measurements, its tables and its goals.
#[derive(Clone, Copy)]
pub struct Suite {
    /// Name, such as `spot`.
    pub name: &'static str,
    /// Cases, in the order in which they run.
    pub cases: &'static [&'static str],
    /// Creates the groups, with or without peers.
    pub groups: fn(&BenchOptions, with_peers: bool) -> Vec<PointGroup>,
    /// Columns of the tables.
    pub layouts: &'static [CaseLayout],
    /// Goals that Dunlin sets itself.
    pub goals: &'static [Goal],
    /// Claims of its document.
    pub claims: &'static [ClaimedFigure],
    /// Figures that peers are known to reach.
    pub known: &'static [PeerFigure],
    /// Text that the suite's document prints for each point in addition to the tables.
    pub blocks: fn(&RowSet) -> String,
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
