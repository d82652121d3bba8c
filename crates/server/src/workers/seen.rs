//! What a node sees of the cluster's tasks. Every node takes in every command, so that none has to ask another.

use dunlin::Node;
use dunlin_scale::{Looked, Totals};

use super::Seen;

/// Looks at the tasks of a node's cluster, as the node has them; nothing while it takes no part.
pub fn of_node(node: &Node) -> impl FnMut() -> Option<Seen> + Send + use<> {
    let node = node.clone();
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
            Seen { looked: Looked { signals: state.signals(), totals }, workers }
        });
        seen.ok()
    }
}
