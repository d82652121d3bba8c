//! Metrics of the cluster's keys and of Raft. A node that has not joined a cluster has none of them.

use dunlin::state::{ControlQuery, ControlQueryResult};
use dunlin::{Leadership, Node};

use super::exposition::Exposition;
use super::exposition::MetricKind::{Counter, Gauge};

pub(super) fn write(node: &Node, out: &mut Exposition) {
    let Some(control) = node.control_if_any() else { return };
    let Ok(status) = control.status() else { return };
    let leads = u64::from(control.lead().is_ok_and(|lead| lead == Leadership::Local));
    for (name, help, value) in [
        ("dunlin_raft_leader", "1 while this node is the leader.", leads),
        ("dunlin_raft_has_leader", "1 while this node knows the leader.", u64::from(status.leader.is_some())),
        ("dunlin_raft_voters", "Voters of the cluster.", status.voters.len() as u64),
        ("dunlin_raft_learners", "Learners of the cluster.", status.learners.len() as u64),
        ("dunlin_raft_stopped", "1 after this node left the cluster.", u64::from(status.stopped.is_some())),
    ] {
        out.metric(Gauge, name, help, value);
    }
    for (name, help, value) in [
        ("dunlin_raft_term", "This node's Raft term.", status.term),
        (
            "dunlin_raft_last_index",
            "Index of the last entry in this node's Raft log.",
            status.last.unwrap_or(0),
        ),
        (
            "dunlin_raft_applied_index",
            "Index of the last entry that this node has applied.",
            status.applied.unwrap_or(0),
        ),
        (
            "dunlin_raft_snapshot_index",
            "Index of the last entry in this node's snapshot.",
            status.snapshot.unwrap_or(0),
        ),
    ] {
        out.metric(Counter, name, help, value);
    }
    if let Ok((commands, duration)) = control.commits() {
        let help = "Commands that this node committed as the leader.";
        out.metric(Counter, "dunlin_raft_committed_total", help, commands);
        let help = "Total time of these commands, from the proposal until they were applied here.";
        out.metric(Counter, "dunlin_raft_commit_seconds_total", help, duration.as_secs_f64());
    }
    let Ok((Ok(ControlQueryResult::Status { revision, keys, bytes, leases, .. }), bytes_max)) =
        control.with(|state| (state.answer(&ControlQuery::Status), state.limits().state_bytes_max))
    else {
        return;
    };
    out.metric(Counter, "dunlin_control_revision", "Last revision that this node has applied.", revision);
    for (name, help, value) in [
        ("dunlin_control_keys", "Keys, including those of the system.", keys),
        ("dunlin_control_bytes", "Approximate bytes of clients' keys and values.", bytes),
        (
            "dunlin_control_bytes_limit",
            "Limit of these bytes (kv.bytes_max); larger writes are refused.",
            bytes_max,
        ),
        ("dunlin_control_leases", "Leases that have not ended.", leases),
    ] {
        out.metric(Gauge, name, help, value);
    }
}
