//! What a node sees of the cluster's tasks. Every node takes in every command, so that none has to ask another.

use dunlin::Node;
use dunlin::scheduler::{Shape, State};
use dunlin_scale::{Looked, Totals};

use super::Seen;

/// Looks at the tasks of a node's cluster, as the node has them; nothing while it takes no part. A worker more is like those whose names begin with this:
/// what they could not do does not count. Until the first of them has come nobody knows what they can, and all tasks count.
pub fn of_node(node: &Node, prefix: &str) -> impl FnMut() -> Option<Seen> + Send + use<> {
    let node = node.clone();
    let prefix = format!("{prefix}-");
    let mut shapes: Vec<Shape> = Vec::new();
    move || {
        let tasks = node.tasks().ok()?;
        let seen = tasks.with(|state| {
            let mut totals = Totals::default();
            for tenant in state.tenants() {
                let account = tenant.account;
                totals.submitted += account.submitted;
                totals.ended += account.completed + account.failed;
            }
            let workers = state.workers().map(|worker| (worker.worker, worker.name));
            let workers: Vec<_> =
                workers.map(|(id, name)| (id, String::from_utf8_lossy(&name).into_owned())).collect();
            note_shapes(state, &prefix, &mut shapes);
            Seen { looked: Looked { signals: state.signals_for(&shapes), totals }, workers }
        });
        seen.ok()
    }
}

/// What those are like that are there now, each sort once; while none is, what they were like.
fn note_shapes(state: &State, prefix: &str, shapes: &mut Vec<Shape>) {
    let own = state.workers().filter(|worker| worker.name.starts_with(prefix.as_bytes()));
    let mut now: Vec<Shape> = own.map(|worker| Shape::from(&worker)).collect();
    now.sort_unstable();
    now.dedup();
    if !now.is_empty() {
        *shapes = now;
    }
}
