//! Tracks which connection of each other node is the newest, and refuses batches from a node's older connections.
//!
//! When a node loses its connection to this node, it reports the batches without a response as lost, and sends later
//! batches over a new connection. This node may still have batches from the old connection. They must not be appended
//! after the later batches.
//!
//! Invariant: after a connection was registered, no batch from an older connection of the same node is appended.
//!
//! Limit: a node has an entry only while it has a connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The session number of a node's newest connection. Its lock is held during each append of a batch from this node.
type NewestSession = Mutex<u64>;

/// The other nodes that have connections to this node.
#[derive(Debug, Default)]
pub(crate) struct NodeConnections(Mutex<HashMap<Box<str>, Weak<NewestSession>>>);

/// One registered connection of another node.
#[derive(Debug)]
pub(crate) struct NodeConnection {
    session: u64,
    newest: Arc<NewestSession>,
}

impl NodeConnections {
    /// Registers a new connection of the node with this name.
    pub(crate) fn register(&self, name: &str, session: u64) -> NodeConnection {
        let newest = {
            let mut nodes = lock(&self.0);
            nodes.retain(|_, newest| newest.strong_count() > 0);
            let known = nodes.get(name).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let newest = Arc::new(NewestSession::default());
                nodes.insert(name.into(), Arc::downgrade(&newest));
                newest
            })
        };
        {
            let mut newest = lock(&newest);
            *newest = session.max(*newest);
        }
        NodeConnection { session, newest }
    }
}

impl NodeConnection {
    /// Calls `append` and returns its result. If the other node has a newer connection, does not call `append`, and
    /// returns `None`.
    pub(crate) fn append<T>(&self, append: impl FnOnce() -> T) -> Option<T> {
        let newest = lock(&self.newest);
        (*newest == self.session).then(append)
    }

    /// Whether the other node has a connection that is newer than this value's connection.
    pub(crate) fn is_replaced(&self) -> bool {
        *lock(&self.newest) != self.session
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_connection_replaces_only_the_old_one_of_the_same_node() {
        let nodes = NodeConnections::default();
        let (first, other) = (nodes.register("$node-1", 1), nodes.register("$node-2", 2));
        assert!([&first, &other].iter().all(|one| one.append(|| ()).is_some()));
        let second = nodes.register("$node-1", 3);
        assert!(first.is_replaced() && first.append(|| ()).is_none());
        assert!([&second, &other].iter().all(|one| one.append(|| ()).is_some()));
        drop(second);
        assert!(first.is_replaced(), "its batches are older than those of the connection that has ended");
        drop((first, other));
        nodes.register("$node-3", 4);
        assert_eq!(lock(&nodes.0).len(), 1, "nodes without connections are forgotten");
    }
}
