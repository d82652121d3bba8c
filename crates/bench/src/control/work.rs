//! What clients of a key-value store are to do, and what came of it: the same order to ours and to the rivals'.
//!
//! Ours is the role `control-load` of this program, the rivals' is `peers/kv/load`. Both read it as JSON, keep so many requests on their
//! way, each from a lane with keys of its own, and report only after all that was acknowledged was read back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::child::{Child, PATIENCE};
use crate::point::Sample;
use crate::stats::Latencies;

/// The order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    /// Which store, by its target's name.
    pub store: String,
    /// Where its nodes are.
    pub endpoints: Vec<String>,
    /// `put`, `get`, `cas`, `batch` or `range`.
    pub case: String,
    /// Connections.
    pub clients: usize,
    /// Requests on their way, over all connections.
    pub in_flight: usize,
    /// Keys there are.
    pub keys: usize,
    /// Bytes of a value.
    pub bytes: usize,
    /// Keys of one request of `batch` and `range`.
    pub batch: usize,
    /// Not counted.
    pub warmup_ns: u64,
    /// Counted.
    pub time_ns: u64,
    /// Whom ours connect to: `leader`, or `all` nodes, which hand on to it. The rivals' clients connect to all.
    #[serde(default)]
    pub via: String,
    /// First the peak is measured, then counted at half of it, in an open loop.
    #[serde(default)]
    pub half: bool,
    /// Who watch all changes.
    #[serde(default)]
    pub watchers: usize,
    /// Requests a second in an open loop; 0 for a closed one.
    #[serde(default)]
    pub rate: f64,
}

/// What was answered within the time.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Requests.
    pub ops: u64,
    /// Requests that failed.
    pub errors: u64,
    /// The time.
    pub elapsed_ns: u64,
    /// Latencies: in an open loop from when a request was due, in a closed one from when it was sent.
    pub avg_ns: Option<f64>,
    /// See above.
    pub p50_ns: Option<u64>,
    /// See above.
    pub p95_ns: Option<u64>,
    /// See above.
    pub p99_ns: Option<u64>,
    /// Of a half: the peak, requests a second.
    #[serde(default)]
    pub peak_per_s: f64,
    /// Of commands: from proposing to the answer, at the leader.
    #[serde(default)]
    pub commit_avg_ns: f64,
    /// Of commands: entries of the log that carried them.
    #[serde(default)]
    pub entries_per_s: f64,
    /// When the first answer came, or how long it took.
    #[serde(default)]
    pub first_ns: u64,
    /// Events that watchers read.
    #[serde(default)]
    pub events: u64,
    /// Elections that were won meanwhile.
    #[serde(default)]
    pub elections: u64,
    /// Of what nodes asked each other, the share for which a connection was there.
    #[serde(default)]
    pub links: f64,
}

/// More failures than this share of the answers, and nothing is reported.
const ERRORS_MAX: f64 = 0.001;

impl Work {
    /// Writes to every node all the time, and answers to [`super::failover::Ask`].
    pub fn probe() -> Self {
        Self { case: "probe".to_owned(), clients: 1, in_flight: 1, ..Self::default() }
    }

    /// How long its report may take: keys are loaded before and read back after.
    pub fn patience(&self) -> Duration {
        Duration::from_nanos(self.warmup_ns + self.time_ns) + 2 * PATIENCE
    }
}

impl Report {
    /// Waits for the report of who does the work.
    pub fn of(work: &Work, child: &mut Child) -> Result<Self> {
        let report: Self = child.line(work.patience()).context("waiting for the clients")?;
        let share = report.errors as f64 / report.ops.max(1) as f64;
        ensure!(share <= ERRORS_MAX, "{} requests failed beside {} answered", report.errors, report.ops);
        Ok(report)
    }

    /// The same with these latencies.
    pub fn with(self, latencies: &Latencies) -> Self {
        Self {
            avg_ns: latencies.mean_ns(),
            p50_ns: latencies.quantile_ns(0.50),
            p95_ns: latencies.quantile_ns(0.95),
            p99_ns: latencies.quantile_ns(0.99),
            ..self
        }
    }

    /// As figures.
    pub fn sample(&self) -> Sample {
        let sample = Sample::new()
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
