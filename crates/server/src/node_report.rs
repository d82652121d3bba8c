//! The node's reports about itself: five JSON objects, over HTTP (`GET /v1/node/…`) and once a second in topic
//! `$node` (`docs/listeners.md`), each under its name as the key.
//!
//! Publishing a record updates no counters for the reports. Without a subscriber, the node publishes no reports.
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
use dunlin::topic::{Draft, Meta, Payload, Topic};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::shared::SharedServer;
use crate::workers::WorkersView;
use cluster::ClusterEvents;
use past::RateHistory;

/// Interval of the published reports.
const TICK: Duration = Duration::from_secs(1);
/// Number of topics in a report; the busiest are shown.
const TOPICS_SHOWN: usize = 50;
/// Maximum number of tenants, of queues and of workers in a report.
const ROWS_SHOWN: usize = 100;
/// Number of cluster events that are kept.
const EVENTS_KEPT: usize = 100;

/// The reports that a node makes about itself.
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

    /// The report's name and key.
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

/// Data that is kept from one report to the next: earlier counters and events.
#[derive(Debug, Default)]
pub(crate) struct NodeReports {
    past: Mutex<RateHistory>,
    noticed: Mutex<ClusterEvents>,
    workers: Mutex<Option<WorkersView>>,
}

impl NodeReports {
    /// Adds the workers that this node starts to its report.
    pub(crate) fn starts(&self, workers: WorkersView) {
        *lock(&self.workers) = Some(workers);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds one report of the node's present state.
pub(crate) async fn say(shared: &Arc<SharedServer>, about: ReportKind) -> Value {
    let mut said = match about {
        ReportKind::Stats => stats::say(shared).await,
        ReportKind::Topics => topics::say(shared).await,
        ReportKind::Cluster => cluster::say(shared),
        ReportKind::Work => work::say(shared),
        ReportKind::Spaces => spaces::say(shared),
    };
    said["at_ms"] = (now_ns() / 1_000_000).into();
    said
}

/// Publishes all reports once a second while the topic has a subscriber, until the task is aborted. The topic exists
/// when this function returns.
pub(crate) fn keep(shared: Arc<SharedServer>) -> impl Future<Output = ()> {
    let topic = shared.node.own_topic();
    async move {
        match topic {
            Ok(topic) => keep_saying(shared, topic).await,
            Err(error) => tracing::warn!(%error, "cannot create the topic of the node's reports"),
        }
    }
}

async fn keep_saying(shared: Arc<SharedServer>, topic: Arc<Topic>) {
    let mut tick = Instant::now();
    loop {
        tick = (tick + TICK).max(Instant::now());
        sleep_until(tick).await;
        lock(&shared.node_report.noticed).look(&shared);
        // A subscriber of any report receives all of them.
        if !topic.logs()[0].has_subscriber("") {
            continue;
        }
        for about in ReportKind::ALL {
            let said = say(&shared, about).await.to_string();
            publish(&shared, &topic, about, &said);
        }
    }
}

fn publish(shared: &SharedServer, topic: &Topic, about: ReportKind, said: &str) {
    let tail = format!("{}.{}", number_of(shared), about.name());
    let key = about.name().as_bytes();
    let meta = Meta { subject_tail: &tail, key: Some(key), ..Meta::default() };
    let draft = Draft { meta, payload: Payload::Copied(said.as_bytes()) };
    if let Err(error) = topic.append_drafts(now_ns(), 0, false, [draft].iter()) {
        tracing::debug!(%error, "cannot publish a report of the node");
    }
}

/// The node's number in its cluster; 1 for a node outside a cluster.
fn number_of(shared: &SharedServer) -> u64 {
    let status = shared.node.control_if_any().and_then(|control| control.status().ok());
    status.map_or(1, |status| status.id)
}
