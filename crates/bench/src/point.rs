//! What is measured: points, gathered in groups that run alternately, gathered in suites.
//!
//! A *point* is one target under one set of parameters. The points of a *group* are to be compared
//! with each other, so one round measures each of them once before the next round begins: a
//! neighbour's noise then falls on all alike. A point says what it measured once; medians are the
//! runner's business.

use std::fmt;

use anyhow::Result;

use crate::child::ChildProgram;
use crate::goal::{Claim, Goal, Known};
use crate::layout::Layout;
use crate::options::Options;
use crate::params::Params;
use crate::peers::PeerPrograms;
use crate::row::RowSet;

/// Who is measured; the names of the design.
pub mod target {
    /// Ours.
    pub const DUNLIN: &str = "dunlin";
    /// Debian's libzmq, by C programs.
    pub const LIBZMQ: &str = "libzmq";
    /// nats-server, by a client that moves raw bytes.
    pub const NATS: &str = "nats";
    /// Debian's Redis, by the same client.
    pub const REDIS: &str = "redis";
    /// etcd, by its Go client.
    pub const ETCD: &str = "etcd";
    /// nats-server's key-value buckets, by nats.go.
    pub const JETSTREAM: &str = "jetstream";
    /// A plain tonic server that echoes.
    pub const TONIC: &str = "tonic";
    /// Bare sockets, the machine's floor.
    pub const RAW: &str = "raw";
    /// The `rtrb` single-producer ring, the floor in process.
    pub const RTRB: &str = "rtrb";
    /// Our own log on disk, without a topic on top: the floor of durable ones.
    pub const JOURNAL: &str = "journal";
    /// Tasks on Redis, by the Go library.
    pub const ASYNQ: &str = "asynq";
    /// Tasks on Redis, by the Python library.
    pub const CELERY: &str = "celery";
    /// Tasks by HyperQueue's own server.
    pub const HYPERQUEUE: &str = "hyperqueue";
    /// The standard library's collections.
    pub const STD: &str = "std";
}

/// What a point needs from its surroundings.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The validated options.
    pub options: Options,
    /// How to start this program again as another process.
    pub child: ChildProgram,
    /// Where the peers are built.
    pub peers: PeerPrograms,
}

/// What one run of a point measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Metric and value, in the order they were added.
    pub figures: Vec<(&'static str, f64)>,
}

impl Sample {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// This sample and one more figure.
    pub fn with(mut self, metric: &'static str, value: f64) -> Self {
        self.figures.push((metric, value));
        self
    }

    /// This sample and one more figure, where it was measured.
    pub fn with_known(self, metric: &'static str, value: Option<f64>) -> Self {
        match value {
            Some(value) => self.with(metric, value),
            None => self,
        }
    }

    /// This sample and one more time in ns, where it was measured.
    pub fn with_time(self, metric: &'static str, ns: Option<u64>) -> Self {
        self.with_known(metric, ns.map(|ns| ns as f64))
    }

    /// This sample and all of another.
    pub fn and(mut self, other: Self) -> Self {
        self.figures.extend(other.figures);
        self
    }

    /// The figure of a metric.
    pub fn get(&self, metric: &str) -> Option<f64> {
        self.figures.iter().find(|(known, _)| *known == metric).map(|(_, value)| *value)
    }
}

/// The peer is not installed: the point is skipped and that is said.
#[derive(Clone, Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// One run. It must fail, not return, when a delivery was missing or wrong: that is what lets the
/// runner mark its rows as checked.
pub type Measure = Box<dyn FnMut(&Bench) -> Result<Sample>>;

/// One target under one set of parameters.
pub struct Point {
    /// The case it belongs to.
    pub case: &'static str,
    /// Who is measured.
    pub target: &'static str,
    /// Everything that tells it from its neighbours.
    pub params: Params,
    /// Measures once.
    pub measure: Measure,
}

impl Point {
    /// A point.
    pub fn new(
        case: &'static str,
        target: &'static str,
        params: Params,
        measure: impl FnMut(&Bench) -> Result<Sample> + 'static,
    ) -> Self {
        Self { case, target, params, measure: Box::new(measure) }
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.case, self.target, self.params)
    }
}

/// Points that run alternately.
pub type Group = Vec<Point>;

/// A suite: a name, and the groups it consists of.
#[derive(Clone, Copy)]
pub struct Suite {
    /// The name, such as `spot`.
    pub name: &'static str,
    /// The cases, in the order they are run.
    pub cases: &'static [&'static str],
    /// Makes the groups; with peers or ours alone.
    pub groups: fn(&Options, with_peers: bool) -> Vec<Group>,
    /// The columns of its tables.
    pub layouts: &'static [Layout],
    /// What must be reached.
    pub goals: &'static [Goal],
    /// What its document says.
    pub claims: &'static [Claim],
    /// What its peers are known to do.
    pub known: &'static [Known],
    /// What its document prints of each point beside the tables.
    pub blocks: fn(&RowSet) -> String,
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
