//! The work of a key-value store's clients, and their report: the same for Dunlin and for rivals.
//! Dunlin's role is `control-load` of this program, the rivals' program is `peers/kv/load`. Both read the
//! work as JSON and keep requests in flight from lanes with their own keys. Both report only after they have
//! read back all acknowledged writes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::child::{Child, PATIENCE};
use crate::point::RunSample;
use crate::stats::Latencies;

/// The load that the client process of a key-value benchmark has to produce, sent to that process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ControlWork {
    /// Name of the target.
    pub store: String,
    /// Addresses of the cluster's nodes.
    pub endpoints: Vec<String>,
    /// `put`, `get`, `cas`, `batch` or `range`.
    pub case: String,
    /// Connections.
    pub clients: usize,
    /// Requests in flight, over all connections.
    pub in_flight: usize,
    /// Number of keys.
    pub keys: usize,
    /// Size of a value, bytes.
    pub bytes: usize,
    /// Number of keys in one request of kind `batch` or `range`.
    pub batch: usize,
    /// Uncounted time.
    pub warmup_ns: u64,
    /// Counted time.
    pub time_ns: u64,
    /// Nodes that our clients connect to: `leader`, or `all`, which forward to it. Rivals' clients connect to
    /// all.
    #[serde(default)]
    pub via: String,
    /// Whether the peak is measured first, then half of it counted in an open loop.
    #[serde(default)]
    pub half: bool,
    /// Number of watchers of all changes.
    #[serde(default)]
    pub watchers: usize,
    /// Requests a second in an open loop; 0 for a closed one.
    #[serde(default)]
    pub rate: f64,
}

/// The number and latencies of the requests that a client process made in a key-value benchmark.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ControlReport {
    /// Answered requests.
    pub ops: u64,
    /// Failed requests.
    pub errors: u64,
    /// Length of the counted time, ns.
    pub elapsed_ns: u64,
    /// Latencies: in an open loop from the due time, in a closed one from the send time. Average.
    pub avg_ns: Option<f64>,
    /// Median.
    pub p50_ns: Option<u64>,
    /// 95th percentile.
    pub p95_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// If the load is half of the peak: the peak, requests a second.
    #[serde(default)]
    pub peak_per_s: f64,
    /// For commands: mean time from proposal to response, at the leader.
    #[serde(default)]
    pub commit_avg_ns: f64,
    /// For commands: log entries a second.
    #[serde(default)]
    pub entries_per_s: f64,
    /// Time at which the first response arrived, or the duration until it arrived.
    #[serde(default)]
    pub first_ns: u64,
    /// Events that watchers read.
    #[serde(default)]
    pub events: u64,
    /// Elections that were won during the counted time.
    #[serde(default)]
    pub elections: u64,
    /// Share of requests between nodes for which a connection existed.
    #[serde(default)]
    pub links: f64,
}

/// Share of failures above which nothing is reported.
const ERRORS_MAX: f64 = 0.001;

impl ControlWork {
    /// Describes clients that write to every node all the time, and respond to each `ProbeCommand`.
    pub fn probe() -> Self {
        Self { case: "probe".to_owned(), clients: 1, in_flight: 1, ..Self::default() }
    }

    /// Longest wait for the report. It includes loading the keys before and reading them back afterwards.
    pub fn patience(&self) -> Duration {
        Duration::from_nanos(self.warmup_ns + self.time_ns) + 2 * PATIENCE
    }
}

impl ControlReport {
    /// Waits for the report of a child.
    pub fn of(work: &ControlWork, child: &mut Child) -> Result<Self> {
        let report: Self = child.line(work.patience()).context("the clients did not finish")?;
        let share = report.errors as f64 / report.ops.max(1) as f64;
        ensure!(share <= ERRORS_MAX, "{} requests failed, {} were answered", report.errors, report.ops);
        Ok(report)
    }

    /// Adds these latencies.
    pub fn with(self, latencies: &Latencies) -> Self {
        Self {
            avg_ns: latencies.mean_ns(),
            p50_ns: latencies.quantile_ns(0.50),
            p95_ns: latencies.quantile_ns(0.95),
            p99_ns: latencies.quantile_ns(0.99),
            ..self
        }
    }

    /// The report as figures.
    pub fn sample(&self) -> RunSample {
        let sample = RunSample::new()
            .with("ops_per_s", self.ops as f64 * 1e9 / self.elapsed_ns as f64)
            .with_known("avg_ns", self.avg_ns)
            .with_time("p50_ns", self.p50_ns)
            .with_time("p95_ns", self.p95_ns)
            .with_time("p99_ns", self.p99_ns)
            .with("errors", self.errors as f64);
        let more = [
            ("peak_per_s", self.peak_per_s),
            ("entries_per_s", self.entries_per_s),
            ("commit_avg_ns", self.commit_avg_ns),
            ("links_there", self.links),
        ];
        more.into_iter()
            .filter(|(_, value)| *value > 0.0)
            .fold(sample, |sample, (name, value)| sample.with(name, value))
    }
}
