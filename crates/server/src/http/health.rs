//! Health probes: responses that say whether the node is alive, ready, and started.
//!
//! No probe queries another node, a client or a topic. The cluster's state is judged by the last messages that the
//! other nodes sent.

use std::time::Duration;

use axum::http::StatusCode;
use axum::{Extension, Json};
use dunlin::{RefusedTopic, steady_ns};
use serde_json::{Value, json};

use super::context::Context;
use crate::shared::SharedServer;

/// Each listener thread must run a task within this time; otherwise the node does not count as alive.
const ALIVE_WITHIN: Duration = Duration::from_secs(5);
/// If housekeeping has not run for this time, the node is not ready. Housekeeping normally runs every second.
const HOUSEKEEPING_WITHIN: Duration = Duration::from_secs(30);

/// Returns success if the node is alive: every listener thread runs tasks.
pub(super) async fn healthz(Extension(context): Extension<Context>) -> (StatusCode, Json<Value>) {
    let mut missing = Vec::new();
    // Starts a task on all threads at the same time, so that the response takes no longer than the slowest thread.
    let probes: Vec<_> = context.shared().cores().iter().map(|core| core.handle.spawn(async {})).collect();
    let deadline = tokio::time::Instant::now() + ALIVE_WITHIN;
    for (number, probe) in probes.into_iter().enumerate() {
        if tokio::time::timeout_at(deadline, probe).await.is_err() {
            missing.push(format!("thread {number} of the listeners ran no task for {ALIVE_WITHIN:?}"));
        }
    }
    verdict("alive", missing)
}

/// Returns success if the node is ready: it accepts connections, housekeeping runs, and the disk works and has room. In
/// a cluster, there must also be a leader, and the node must have caught up.
pub(super) async fn readyz(Extension(context): Extension<Context>) -> (StatusCode, Json<Value>) {
    verdict("ready", missing(context.shared()))
}

/// Reasons why the node is not ready; empty if it is ready.
pub(crate) fn missing(shared: &SharedServer) -> Vec<String> {
    let mut missing = Vec::new();
    if shared.is_stopping() {
        missing.push("the node is shutting down".to_owned());
    }
    let sessions_max = shared.limits.sessions_max;
    if shared.session_count() >= sessions_max {
        missing.push(format!("the node has {sessions_max} connections, its limit (limits.connections)"));
    }
    missing.extend(shared.accept_status.obstacle(steady_ns()));
    if shared.housekeeping.since_last() > HOUSEKEEPING_WITHIN {
        missing.push(format!("housekeeping did not run for {HOUSEKEEPING_WITHIN:?}"));
    }
    let cluster = shared.cluster.get();
    let in_cluster = cluster.and_then(|cluster| cluster.missing());
    missing.extend(shared.node.lacks_room().filter(|why| in_cluster.as_ref() != Some(why)));
    missing.extend(in_cluster);
    // In a cluster, the reason that the cluster reports also covers failed keys and tasks.
    if cluster.is_none() {
        missing.extend(shared.node.failed_parts());
    }
    missing.extend(damaged_topics(shared));
    missing
}

/// Describes the topics that could not be opened, and the topics whose disk failed. If the node has users, states only
/// how many topics these are, because probes need no login.
fn damaged_topics(shared: &SharedServer) -> Vec<String> {
    let mut refused = shared.node.refused_topics();
    refused.retain(RefusedTopic::is_damaged);
    let failed = shared.node.failed_topics();
    let mut missing = Vec::new();
    if shared.access.is_some() {
        let hint = "see the log or dunlin topics list";
        if !refused.is_empty() {
            missing.push(format!("topics that could not be opened: {}; {hint}", refused.len()));
        }
        if !failed.is_empty() {
            missing.push(format!("topics whose disk failed: {}; {hint}", failed.len()));
        }
        return missing;
    }
    missing.extend(
        refused
            .into_iter()
            .map(|RefusedTopic { name, why, .. }| format!("topic {name} could not be opened: {why}")),
    );
    missing.extend(failed.into_iter().map(|name| {
        format!("topic {name} accepts no records: its disk failed; see the log, and start the node again")
    }));
    missing
}

/// Returns success. The listeners open only after the durable topics were recovered, so any response means that the
/// node has started.
pub(super) async fn startupz() -> (StatusCode, Json<Value>) {
    verdict("started", Vec::new())
}

fn verdict(name: &str, missing: Vec<String>) -> (StatusCode, Json<Value>) {
    let status = if missing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({name: missing.is_empty(), "missing": missing})))
}
