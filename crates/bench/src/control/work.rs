//! The description of the requests that clients of a key-value store make, and the clients' report. Both have the same
//! form for Dunlin and for peers.
//!
//! For Dunlin, this program makes the requests in its role `control-load`; for peers, the program `peers/kv/load` makes
//! them. Both programs read the description as JSON. Both programs send requests from several lanes (tasks with one
//! request in flight each). Each lane writes its own keys. Each program reads back all acknowledged writes before it
//! reports.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::child::{Child, TIMEOUT};
use crate::point::RunSample;
use crate::stats::Latencies;

/// The load that the client process of a key-value benchmark must produce. The process receives this description as
/// JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ControlWorkload {
    /// The name of the measured system.
    pub store: String,
    /// The addresses of the cluster's nodes.
    pub endpoints: Vec<String>,
    /// The kind of request, such as `put`, `get`, `cas`, `batch` or `range`; or the name of a special measurement, such
    /// as `probe` or `snapshot`.
    pub case: String,
    /// The number of connections.
    pub clients: usize,
    /// The number of requests in flight, over all connections.
    pub in_flight: usize,
    /// The number of keys.
    pub keys: usize,
    /// The size of a value in bytes.
    pub bytes: usize,
    /// The number of keys in one request of kind `batch` or `range`.
    pub batch: usize,
    /// The duration of the warm-up, in which requests are made but not counted, in ns.
    pub warmup_ns: u64,
    /// The time during which requests are counted, in ns.
    pub time_ns: u64,
    /// The nodes to which Dunlin's clients connect: the `leader`, or `all` nodes, which forward requests to the leader.
    /// Peers' clients connect to all nodes.
    #[serde(default)]
    pub via: String,
    /// Whether to measure requests at half of the highest rate, in an open loop. The highest rate is measured first.
    #[serde(default)]
    pub half: bool,
    /// The number of watchers. Each of them reads all changes.
    #[serde(default)]
    pub watchers: usize,
    /// The number of requests per second in an open loop; 0 means a closed loop.
    #[serde(default)]
    pub rate: f64,
}

/// The report of a client process in a key-value benchmark: how many requests it made, and their latencies.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ControlReport {
    /// The number of successful requests.
    pub ops: u64,
    /// The number of failed requests.
    pub errors: u64,
    /// The time during which requests were counted, in ns.
    pub elapsed_ns: u64,
    /// The average latency, in ns. In an open loop, latencies count from the time at which the request is due; in a
    /// closed loop, from the time of sending.
    pub avg_ns: Option<f64>,
    /// The median latency, in ns.
    pub p50_ns: Option<u64>,
    /// The 95th percentile of the latency, in ns.
    pub p95_ns: Option<u64>,
    /// The 99th percentile of the latency, in ns.
    pub p99_ns: Option<u64>,
    /// The highest rate in requests per second, if the latencies were measured at half of it; otherwise 0.
    #[serde(default)]
    pub peak_per_s: f64,
    /// For commands: the mean time from proposal to response at the leader, in ns. Measured at half of the highest rate
    /// only.
    #[serde(default)]
    pub commit_avg_ns: f64,
    /// For commands: the number of log entries per second.
    #[serde(default)]
    pub entries_per_s: f64,
    /// The meaning depends on the case: the time of the first response on the monotonic clock, or how long a snapshot
    /// took, in ns.
    #[serde(default)]
    pub first_ns: u64,
    /// The number of events that all watchers read.
    #[serde(default)]
    pub events: u64,
    /// The number of elections that were won while the requests were made.
    #[serde(default)]
    pub elections: u64,
    /// The share of the requests between nodes that used an existing connection.
    #[serde(default)]
    pub links: f64,
}

/// The highest allowed ratio of failed to successful requests. Above this ratio, the measurement fails.
const ERRORS_MAX: f64 = 0.001;

impl ControlWorkload {
    /// Returns the workload of clients that write to every node at a fixed interval, and respond to each
    /// `ProbeCommand`.
    pub fn probe() -> Self {
        Self { case: "probe".to_owned(), clients: 1, in_flight: 1, ..Self::default() }
    }

    /// Returns how long to wait for the report. The time includes loading the keys before the measurement, and reading
    /// all keys afterwards.
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.warmup_ns + self.time_ns) + 2 * TIMEOUT
    }
}

impl ControlReport {
    /// Waits for the report of a client process.
    pub fn of(work: &ControlWorkload, child: &mut Child) -> Result<Self> {
        let report: Self = child.read_line(work.timeout()).context("the clients did not finish")?;
        let share = report.errors as f64 / report.ops.max(1) as f64;
        ensure!(share <= ERRORS_MAX, "{} requests failed, and {} succeeded", report.errors, report.ops);
        Ok(report)
    }

    /// Returns the report with the average and the percentiles of `latencies`.
    pub fn with(self, latencies: &Latencies) -> Self {
        Self {
            avg_ns: latencies.mean_ns(),
            p50_ns: latencies.quantile_ns(0.50),
            p95_ns: latencies.quantile_ns(0.95),
            p99_ns: latencies.quantile_ns(0.99),
            ..self
        }
    }

    /// Returns the report as a sample of a measurement.
    pub fn sample(&self) -> RunSample {
        let sample = RunSample::new()
            .with("ops_per_s", self.ops as f64 * 1e9 / self.elapsed_ns as f64)
            .with_optional("avg_ns", self.avg_ns)
            .with_time("p50_ns", self.p50_ns)
            .with_time("p95_ns", self.p95_ns)
            .with_time("p99_ns", self.p99_ns)
            .with("errors", self.errors as f64);
        let more = [
            ("peak_per_s", self.peak_per_s),
            ("entries_per_s", self.entries_per_s),
            ("commit_avg_ns", self.commit_avg_ns),
            ("link_reuse_share", self.links),
        ];
        more.into_iter()
            .filter(|(_, value)| *value > 0.0)
            .fold(sample, |sample, (name, value)| sample.with(name, value))
    }
}
