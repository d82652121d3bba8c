//! Figures of the cluster's keys and of Raft; none until the node takes part.

use dunlin::state::{Answer, Query};
use dunlin::{Lead, Node};

use super::exposition::Exposition;
use super::exposition::Kind::{Counter, Gauge};

pub(super) fn write(node: &Node, out: &mut Exposition) {
    let Some(control) = node.control_if_any() else { return };
    let Ok(status) = control.status() else { return };
    let leads = u64::from(control.lead().is_ok_and(|lead| lead == Lead::Here));
    for (name, help, value) in [
        ("dunlin_raft_leader", "1 while this node leads.", leads),
        ("dunlin_raft_has_leader", "1 while this node knows who leads.", u64::from(status.leader.is_some())),
        ("dunlin_raft_voters", "Nodes that have a vote.", status.voters.len() as u64),
        ("dunlin_raft_learners", "Nodes that follow without a vote.", status.learners.len() as u64),
        (
            "dunlin_raft_stopped",
            "1 when this node takes no part any more.",
            u64::from(status.stopped.is_some()),
        ),
    ] {
        out.one(Gauge, name, help, value);
    }
    for (name, help, value) in [
        ("dunlin_raft_term", "The term this node is in.", status.term),
        ("dunlin_raft_last_index", "The last entry of its log.", status.last.unwrap_or(0)),
        ("dunlin_raft_applied_index", "The last entry its state has taken in.", status.applied.unwrap_or(0)),
        ("dunlin_raft_snapshot_index", "The last entry in a snapshot.", status.snapshot.unwrap_or(0)),
    ] {
        out.one(Counter, name, help, value);
    }
    if let Ok((commands, took)) = control.commits() {
        let help = "Commands that were committed through this node as the leader.";
        out.one(Counter, "dunlin_raft_committed_total", help, commands);
        let help = "What they took together, from being asked for until they were taken in here.";
        out.one(Counter, "dunlin_raft_commit_seconds_total", help, took.as_secs_f64());
    }
    let Ok((Ok(Answer::Status { revision, keys, bytes, leases, .. }), bytes_max)) =
        control.with(|state| (state.answer(&Query::Status), state.limits().state_bytes_max))
    else {
        return;
    };
    out.one(Counter, "dunlin_control_revision", "The last revision this node has.", revision);
    for (name, help, value) in [
        ("dunlin_control_keys", "Keys, the system's among them.", keys),
        ("dunlin_control_bytes", "What clients' keys and values take, roughly.", bytes),
        ("dunlin_control_bytes_limit", "Beyond this, growth is refused (kv.bytes_max).", bytes_max),
        ("dunlin_control_leases", "Leases that are alive.", leases),
    ] {
        out.one(Gauge, name, help, value);
    }
}
