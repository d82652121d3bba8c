//! Reads the load of the cluster's tasks for the autoscaler. Every node applies every command, so this node's own state
//! is sufficient.

use dunlin::Node;
use dunlin::scheduler::{Signals, TaskQuery, TaskQueryResult, WorkerShape, WorkerView};
use dunlin_scale::{SchedulerSnapshot, SchedulerTotals};

use super::SchedulerLoad;

/// Returns a function that reads the load of the tasks in a node's cluster. The function returns `None` while the node
/// has no scheduler.
///
/// Only tasks that an additional worker could run are counted. An additional worker is assumed to be like the attached
/// workers whose names begin with `prefix`. Until the first such worker attaches, all tasks are counted.
pub fn node_load_reader(node: &Node, prefix: &str) -> impl FnMut() -> Option<SchedulerLoad> + Send + use<> {
    let node = node.clone();
    let prefix = format!("{prefix}-");
    let mut shapes: Vec<WorkerShape> = Vec::new();
    move || {
        let tasks = node.tasks().ok()?;
        let result = tasks.answer(&TaskQuery::Workers);
        let Ok(TaskQueryResult::Workers { workers }) = result else { return None };
        update_shapes(&workers, &prefix, &mut shapes);
        let workers = workers.iter();
        let workers = workers
            .map(|worker| (worker.worker, String::from_utf8_lossy(&worker.name).into_owned()))
            .collect();
        let load = tasks.read_each(|state| {
            let mut totals = SchedulerTotals::default();
            for tenant in state.tenants() {
                let account = tenant.account;
                totals.submitted += account.submitted;
                totals.ended += account.completed + account.failed;
            }
            (state.signals_for(&shapes), totals)
        });
        let (signals, totals): (Vec<Signals>, Vec<SchedulerTotals>) = load.ok()?.into_iter().unzip();
        let totals = totals.iter().fold(SchedulerTotals::default(), |mut all, of_shard| {
            all.submitted += of_shard.submitted;
            all.ended += of_shard.ended;
            all
        });
        Some(SchedulerLoad {
            snapshot: SchedulerSnapshot { signals: Signals::join(signals), totals },
            workers,
        })
    }
}

/// Stores the shapes of the attached workers whose names begin with `prefix`, without duplicates. A worker's shape
/// consists of the properties that decide which tasks the worker can run. If no such worker is attached, the previous
/// shapes remain.
fn update_shapes(workers: &[WorkerView], prefix: &str, shapes: &mut Vec<WorkerShape>) {
    let matching = workers.iter().filter(|worker| worker.name.starts_with(prefix.as_bytes()));
    let mut attached: Vec<WorkerShape> = matching.map(WorkerShape::from).collect();
    attached.sort_unstable();
    attached.dedup();
    if !attached.is_empty() {
        *shapes = attached;
    }
}
