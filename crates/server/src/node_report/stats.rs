//! Builds the report `stats`: rates, connections, memory, the slowest subscribers, and the clients that were recently
//! refused or disconnected.

use std::sync::Arc;
use std::time::Instant;

use dunlin::Survey;
use serde_json::{Value, json};

use super::past::per_s;
use super::{lock, number_of};
use crate::http::{ProcessFigures, Surveys, departure_json, missing, subscription_json};
use crate::protocol::Protocol;
use crate::shared::SharedServer;

/// Maximum number of subscribers in the report; the slowest are shown.
const SLOWEST_SHOWN: usize = 20;
/// Maximum number of refused or disconnected clients in the report; the newest are shown.
const DEPARTED_SHOWN: usize = 10;

pub(super) async fn build(shared: &Arc<SharedServer>) -> Value {
    let survey = Surveys::latest(shared).await;
    let process = ProcessFigures::now();
    let (node, budget) = (&shared.node, shared.node.budget());
    let slowest = survey.slowest.iter().take(SLOWEST_SHOWN);
    let slowest: Vec<Value> = slowest.map(|subscription| subscription_json(None, subscription)).collect();
    let recent: Vec<Value> = shared.departures.newest(DEPARTED_SHOWN).iter().map(departure_json).collect();
    let losses = &survey.totals.losses;
    json!({
        "node": format!("{:016x}", node.id()),
        "id": number_of(shared),
        "cluster": shared.cluster_id(),
        "name": node.config().name,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": shared.began.elapsed().as_secs_f64(),
        "rates": rates(shared, &survey),
        "totals": {
            "records": survey.totals.records, "bytes": survey.totals.bytes,
            "gaps": losses.gaps, "gap_records": losses.records, "lagging": losses.warnings,
        },
        "topics": survey.topics,
        "subscriptions": survey.subscriptions,
        "listeners": listeners(shared),
        "connections": {
            "open": shared.session_count(), "limit": shared.limits.sessions_max, "refused": shared.traffic.refusals(),
        },
        "memory": {
            "used_bytes": budget.used(), "limit_bytes": budget.limit(), "keys": keys(shared), "tasks": tasks(shared),
        },
        "process": {
            "rss_bytes": process.rss_bytes, "cpu_percent": cpu_percent(shared, &process),
            "threads": process.threads, "open_files": process.open_files,
        },
        "slowest": slowest,
        "recent": recent,
        "missing": missing(shared),
    })
}

/// The memory that keys take, and the limit of this memory; null while the node has no keys.
fn keys(shared: &SharedServer) -> Option<Value> {
    let control = shared.node.control_if_any()?;
    control.with(|state| room(state.bytes(), state.limits().state_bytes_max)).ok()
}

/// The memory that the tasks of all shards take together, and the limit of this memory; null until this node takes part
/// in tasks.
fn tasks(shared: &SharedServer) -> Option<Value> {
    let tasks = shared.node.tasks_if_any()?;
    let shards = tasks.read_each(|state| (state.bytes(), state.limits().state_bytes_max)).ok()?;
    Some(room(shards.iter().map(|shard| shard.0).sum(), shards.iter().map(|shard| shard.1).sum()))
}

fn room(used_bytes: u64, limit_bytes: u64) -> Value {
    json!({"used_bytes": used_bytes, "limit_bytes": limit_bytes})
}

/// The node's rates per second; null while there is no earlier sample.
fn rates(shared: &SharedServer, survey: &Survey) -> Value {
    let (now, totals) = (Instant::now(), &survey.totals);
    let requests = shared.traffic.responses().iter().map(|(_, _, count)| *count).sum();
    let counts = [totals.records, totals.bytes, totals.losses.gaps, totals.losses.warnings, requests];
    let mut past = lock(&shared.node_report.past);
    let rates = past.totals.recent(now).map(|(seconds, before)| {
        let rate_of = |at: usize| per_s(counts[at], before[at], seconds);
        json!({
            "records_per_s": rate_of(0), "bytes_per_s": rate_of(1), "gaps_per_s": rate_of(2),
            "lagging_per_s": rate_of(3), "http_per_s": rate_of(4),
        })
    });
    past.totals.add(now, counts);
    rates.unwrap_or(Value::Null)
}

fn cpu_percent(shared: &SharedServer, process: &ProcessFigures) -> Value {
    let (now, Some(cpu_s)) = (Instant::now(), process.cpu_s) else { return Value::Null };
    let mut past = lock(&shared.node_report.past);
    let cpu_percent = past.cpu.recent(now).map(|(seconds, before)| {
        let percent = (cpu_s - before).max(0.0) / seconds * 100.0;
        (percent * 10.0).round() / 10.0
    });
    past.cpu.add(now, cpu_s);
    cpu_percent.into()
}

/// For each protocol, the listener's address, the number of open connections, and the number of accepted ones.
fn listeners(shared: &SharedServer) -> Vec<Value> {
    let addresses = shared.addresses();
    let listener_json = |(protocol, open, accepted): (Protocol, u64, u64)| {
        let listener_protocol = if protocol == Protocol::Ws { Protocol::Http } else { protocol };
        let address = addresses.iter().find(|(other, _)| *other == listener_protocol);
        let address = address.map(|(_, address)| address.to_string());
        json!({"protocol": protocol.name(), "address": address, "open": open, "accepted": accepted})
    };
    shared.traffic.listeners().map(listener_json).collect()
}
