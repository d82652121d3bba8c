//! Metrics of the cluster's tasks. A node that has not joined a cluster has none of them.

use dunlin::scheduler::{SchedulerState, Signals};
use dunlin::{Leadership, Node};

use super::exposition::Exposition;
use super::exposition::MetricKind::{Counter, Gauge};

pub(super) fn write(node: &Node, out: &mut Exposition) {
    let Some(tasks) = node.tasks_if_any() else { return };
    let read = |state: &SchedulerState| {
        (state.signals(), [state.len(), state.bytes(), state.limits().state_bytes_max])
    };
    let Ok(shards) = tasks.read_each(read) else { return };
    let (signals, counts): (Vec<Signals>, Vec<[u64; 3]>) = shards.into_iter().unzip();
    let sum = |at: usize| counts.iter().map(|counts| counts[at]).sum::<u64>();
    let signals = Signals::join(signals);
    let (known, bytes, bytes_max) = (sum(0), sum(1), sum(2));
    let leads = tasks.shards().iter().filter(|shard| shard.lead() == Ok(Leadership::Local)).count() as u64;
    for (name, help, value) in [
        ("dunlin_tasks_leader", "Task shards that this node leads.", leads),
        ("dunlin_tasks_known", "Known tasks, including ended ones.", known),
        ("dunlin_tasks_bytes", "Approximate bytes of all tasks.", bytes),
        (
            "dunlin_tasks_bytes_limit",
            "Limit of these bytes (tasks.bytes_max); more tasks are refused.",
            bytes_max,
        ),
        ("dunlin_tasks_startable", "Tasks that one more worker could start now.", signals.startable),
        ("dunlin_tasks_held", "Tasks that workers are running.", signals.held),
        ("dunlin_tasks_credit", "Free slots of workers.", signals.credit),
        ("dunlin_tasks_workers", "Workers that are not stopping.", signals.workers),
    ] {
        out.metric(Gauge, name, help, value);
    }
    let oldest = signals.oldest_ms as f64 / 1e3;
    out.metric(Gauge, "dunlin_tasks_oldest_seconds", "Waiting time of the oldest waiting task.", oldest);
    if let Ok((commands, duration)) = tasks.commits() {
        let help = "Task commands that this node committed as the leader.";
        out.metric(Counter, "dunlin_tasks_committed_total", help, commands);
        let help = "Total time of these commands, from the proposal until they were applied here.";
        out.metric(Counter, "dunlin_tasks_commit_seconds_total", help, duration.as_secs_f64());
    }
}
