//! Builds the report `cluster`: the cluster as this node sees it, and the recent changes of leaders, nodes and owners.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dunlin::{TaskShard, now_ns};
use serde_json::{Value, json};

use super::{EVENTS_KEPT, lock};
use crate::cluster::NodeStatus;
use crate::shared::SharedServer;

/// Changes of owners are detected for at most this many topics.
const OWNERS_COMPARED_MAX: usize = 1_000;

/// The recent events of the cluster, and the state at the last check, with which the next check compares.
#[derive(Debug, Default)]
pub(super) struct ClusterEvents {
    events: VecDeque<Value>,
    leader: Option<(Option<u64>, u64)>,
    alive: Option<BTreeMap<u64, bool>>,
    owners: Option<BTreeMap<String, u64>>,
}

impl ClusterEvents {
    /// Checks the cluster's state, and records an event for each difference from the last check. The first check
    /// records one event that describes the present state.
    pub(super) fn update(&mut self, shared: &SharedServer) {
        let Some(status) = shared.cluster.get().and_then(|member| member.node_status()) else { return };
        let alive = alive(shared, &status);
        if self.leader.is_none() {
            let alive_count = alive.values().filter(|is_alive| **is_alive).count();
            self.record(json!({
                "event": "began", "node": status.node, "there": alive_count, "of": alive.len(),
                "leader": status.leader, "term": status.term,
            }));
        }
        self.compare_leader(status.leader, status.term);
        self.compare_nodes(alive);
        self.compare_owners(owners(shared));
    }

    fn compare_leader(&mut self, leader: Option<u64>, term: u64) {
        if let Some(before) = self.leader.replace((leader, term))
            && before != (leader, term)
        {
            self.record(match leader {
                Some(node) => json!({"event": "leader", "node": node, "term": term}),
                None => json!({"event": "no_leader", "term": term}),
            });
        }
    }

    fn compare_nodes(&mut self, alive: BTreeMap<u64, bool>) {
        let before = self.alive.replace(alive.clone());
        let Some(before) = before else { return };
        for (node, is_alive) in &alive {
            match (before.get(node), is_alive) {
                (None, _) => self.record(json!({"event": "joined", "node": node})),
                (Some(true), false) => self.record(json!({"event": "gone", "node": node})),
                (Some(false), true) => self.record(json!({"event": "back", "node": node})),
                _ => {}
            }
        }
        for node in before.keys().filter(|node| !alive.contains_key(node)) {
            self.record(json!({"event": "removed", "node": node}));
        }
    }

    fn compare_owners(&mut self, owners: BTreeMap<String, u64>) {
        let Some(before) = self.owners.replace(owners.clone()) else { return };
        for (topic, to) in &owners {
            if let Some(from) = before.get(topic).filter(|from| *from != to) {
                self.record(json!({"event": "owner", "topic": topic, "from": from, "to": to}));
            }
        }
    }

    fn record(&mut self, mut event: Value) {
        event["at_ms"] = (now_ns() / 1_000_000).into();
        if self.events.len() == EVENTS_KEPT {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

fn alive(shared: &SharedServer, status: &NodeStatus) -> BTreeMap<u64, bool> {
    let is_alive = |node: u64| shared.cluster.get().is_some_and(|member| member.is_alive(node));
    let records = status.nodes.iter().filter(|record| record.removed.is_none());
    records.map(|record| (record.node, is_alive(record.node))).collect()
}

fn owners(shared: &SharedServer) -> BTreeMap<String, u64> {
    let page = shared.node.topics(None, "", OWNERS_COMPARED_MAX);
    let of = |topic: &std::sync::Arc<dunlin::topic::Topic>| {
        Some((topic.name().to_owned(), shared.owner_of(topic)?.node()))
    };
    page.topics.iter().filter_map(of).collect()
}

pub(super) fn build(shared: &SharedServer) -> Value {
    let Some(status) = shared.cluster.get().and_then(|member| member.node_status()) else {
        return build_without_cluster(shared);
    };
    let alive = alive(shared, &status);
    let mut owned: BTreeMap<u64, u64> = BTreeMap::new();
    for owner in owners(shared).into_values() {
        *owned.entry(owner).or_default() += 1;
    }
    let nodes: Vec<Value> = status
        .nodes
        .iter()
        .map(|record| {
            json!({
                "node": record.node, "address": record.address, "release": record.release, "listeners": record.listeners,
                "alive": alive.get(&record.node).copied().unwrap_or(false), "removed": record.removed,
                "topics_owned": owned.get(&record.node).copied().unwrap_or(0),
            })
        })
        .collect();
    let shards = shards(shared);
    let first = shards.first().cloned().unwrap_or_default();
    let events: Vec<Value> = lock(&shared.node_report.events).events.iter().cloned().collect();
    json!({
        "id": status.node, "cluster": status.cluster, "leader": status.leader, "term": status.term,
        "last": status.last, "applied": status.applied, "snapshot": status.snapshot, "revision": status.revision,
        "voters": status.voters, "learners": status.learners, "missing": status.missing,
        "tasks_leader": first["leader"], "tasks_term": first["term"], "tasks_shards": shards,
        "nodes": nodes, "events": events,
    })
}

/// Returns the leader and term of each shard of tasks, because each shard is a Raft group of its own. Empty until this
/// node takes part in tasks.
fn shards(shared: &SharedServer) -> Vec<Value> {
    let shards = shared.node.tasks_if_any().into_iter().flat_map(|tasks| tasks.shards());
    let of = |(at, shard): (usize, &Arc<TaskShard>)| {
        let status = shard.status().ok();
        json!({
            "shard": at, "leader": status.as_ref().and_then(|status| status.leader), "term": status.as_ref().map(|status| status.term),
        })
    };
    shards.enumerate().map(of).collect()
}

/// Builds the report of a node that is not in a cluster.
fn build_without_cluster(shared: &SharedServer) -> Value {
    let mut listeners = BTreeMap::new();
    for (protocol, address) in shared.addresses() {
        listeners.entry(protocol.name()).or_insert_with(|| address.to_string());
    }
    let status = shared.node.control_if_any().and_then(|control| control.status().ok());
    let id = super::number_of(shared);
    let own_entry = json!({
        "node": id, "address": null, "release": env!("CARGO_PKG_VERSION"), "listeners": listeners, "alive": true,
        "removed": null, "topics_owned": shared.node.topics(None, "", OWNERS_COMPARED_MAX).topics.len(),
    });
    json!({
        "id": id, "cluster": null, "leader": status.as_ref().and_then(|status| status.leader),
        "term": status.as_ref().map(|status| status.term),
        "last": status.as_ref().and_then(|status| status.last), "applied": status.as_ref().and_then(|status| status.applied),
        "snapshot": status.as_ref().and_then(|status| status.snapshot), "revision": null,
        "voters": [id], "learners": [], "missing": null, "tasks_leader": null, "tasks_term": null,
        "tasks_shards": shards(shared),
        "nodes": [own_entry], "events": [],
    })
}
