//! Builds and publishes the node's reports about itself: five JSON objects.
//!
//! Clients get a report over HTTP (`GET /v1/node/…`), or subscribe to the topic `$node`, to which each report is
//! published once a second. A report's name is its record's key there (`docs/listeners.md`).
//!
//! The counters are read only for a report: publishing a record does no work for reports. While the topic has no
//! subscriber, the node publishes no reports.
//!
//! Limits: [`TOPICS_SHOWN`], [`ROWS_SHOWN`], [`EVENTS_KEPT`].

mod cluster;
mod past;
mod spaces;
mod stats;
mod topics;
mod work;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin::now_ns;
use dunlin::topic::{Draft, Payload, RecordMeta, Topic};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::shared::SharedServer;
use crate::workers::WorkersView;
use cluster::ClusterEvents;
use past::RateHistory;

/// Interval at which the reports are published.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of topics in a report; the busiest are shown.
const TOPICS_SHOWN: usize = 50;
/// Maximum number of rows in each table of a report: tenants, queues, workers.
const ROWS_SHOWN: usize = 100;
/// Maximum number of a cluster's events that are kept; the newest are kept.
const EVENTS_KEPT: usize = 100;

/// The kinds of reports that a node makes about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportKind {
    Stats,
    Topics,
    Cluster,
    Work,
    Spaces,
}

impl ReportKind {
    pub(crate) const ALL: [ReportKind; 5] =
        [ReportKind::Stats, ReportKind::Topics, ReportKind::Cluster, ReportKind::Work, ReportKind::Spaces];

    /// The name of this report, which is also the key of its records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReportKind::Stats => "stats",
            ReportKind::Topics => "topics",
            ReportKind::Cluster => "cluster",
            ReportKind::Work => "work",
            ReportKind::Spaces => "spaces",
        }
    }
}

/// Data that the node keeps between two reports: earlier counters and the cluster's recent events.
#[derive(Debug, Default)]
pub(crate) struct NodeReports {
    past: Mutex<RateHistory>,
    events: Mutex<ClusterEvents>,
    workers: Mutex<Option<WorkersView>>,
}

impl NodeReports {
    /// Adds a view of the workers that this node starts. The report `work` shows them.
    pub(crate) fn set_workers(&self, workers: WorkersView) {
        *lock(&self.workers) = Some(workers);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds the report of this kind from the node's present state.
pub(crate) async fn build(shared: &Arc<SharedServer>, kind: ReportKind) -> Value {
    let mut report = match kind {
        ReportKind::Stats => stats::build(shared).await,
        ReportKind::Topics => topics::build(shared).await,
        ReportKind::Cluster => cluster::build(shared),
        ReportKind::Work => work::build(shared),
        ReportKind::Spaces => spaces::build(shared),
    };
    report["at_ms"] = (now_ns() / 1_000_000).into();
    report
}

/// Creates the topic for the reports, and returns a future that publishes all reports once a second while the topic has
/// a subscriber.
pub(crate) fn run(shared: Arc<SharedServer>) -> impl Future<Output = ()> {
    let topic = shared.node.node_topic();
    async move {
        match topic {
            Ok(topic) => publish_reports(shared, topic).await,
            Err(error) => tracing::warn!(%error, "cannot create the topic of the node's reports"),
        }
    }
}

async fn publish_reports(shared: Arc<SharedServer>, topic: Arc<Topic>) {
    let mut tick = Instant::now();
    loop {
        tick = (tick + REPORT_INTERVAL).max(Instant::now());
        sleep_until(tick).await;
        lock(&shared.node_report.events).update(&shared);
        // The reports share one topic. If any of them has a subscriber, all are published.
        if !topic.logs()[0].has_subscriber("") {
            continue;
        }
        for kind in ReportKind::ALL {
            let report = build(&shared, kind).await.to_string();
            publish(&shared, &topic, kind, &report);
        }
    }
}

fn publish(shared: &SharedServer, topic: &Topic, kind: ReportKind, report: &str) {
    let tail = format!("{}.{}", number_of(shared), kind.name());
    let key = kind.name().as_bytes();
    let meta = RecordMeta { subject_tail: &tail, key: Some(key), ..RecordMeta::default() };
    let draft = Draft { meta, payload: Payload::Copied(report.as_bytes()) };
    if let Err(error) = topic.append_drafts(now_ns(), 0, false, [draft].iter()) {
        tracing::debug!(%error, "cannot publish a report of the node");
    }
}

/// The node's number in its cluster; 1 if the node is not in a cluster.
fn number_of(shared: &SharedServer) -> u64 {
    let status = shared.node.control_if_any().and_then(|control| control.status().ok());
    status.map_or(1, |status| status.id)
}
