//! Connects this node to the nodes that own topics, in order to forward records to them and to receive records for
//! mirrors.
//!
//! There is one connection for each other node, with Dunlin's own protocol, and one thread. Both are created when they
//! are first needed. Publishers write to the connection's socket directly; the thread reads the responses and the
//! mirrors' records.
//!
//! Limits: those of [`dunlin_client::ClientLimits`] for each connection. If a node is unreachable, its thread tries
//! again after `PAUSE`. Until then, batches for that node are returned to the caller. While a node is not a member of
//! the cluster, its thread waits until there is a request for the node, or until the node returns.

mod feeding;
pub(crate) mod interest;
mod joining;
mod link;
mod presences;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin::state::{ControlCommand, ControlReply};
use dunlin::{
    ClusterCommandError, InFlightBatch, InterestQuery, MirrorFeed, PeerNodes, PublisherPresence,
    RemoteMembership,
};
use dunlin_client::{Address, ClientOptions};

use link::NodeLink;

/// Pause between two attempts to connect to a node.
const PAUSE: Duration = Duration::from_millis(20);
/// A client name with this prefix belongs to a node.
pub(crate) use crate::tcp::NODE_CLIENT;

/// A function that submits commands to the cluster and returns their results.
type CommandSender =
    Box<dyn Fn(&[ControlCommand<'_>]) -> Vec<Result<ControlReply, ClusterCommandError>> + Send + Sync>;
/// A function that returns the address at which other nodes reach a node, and the options to connect with. Returns
/// `None` if the node cannot be reached.
type AddressLookup = Arc<dyn Fn(u64) -> Option<(Address, ClientOptions)> + Send + Sync>;

/// The connections of a node to the other nodes of its cluster.
pub struct NodeLinks {
    id: u64,
    send_commands: CommandSender,
    lookup: AddressLookup,
    links: Mutex<HashMap<u64, Arc<NodeLink>>>,
}

impl NodeLinks {
    /// Creates the value for the node with number `id`. `send_commands` must return within a limited time. `lookup` is
    /// called before each attempt to connect.
    pub fn new(
        id: u64,
        send_commands: impl Fn(&[ControlCommand<'_>]) -> Vec<Result<ControlReply, ClusterCommandError>>
        + Send
        + Sync
        + 'static,
        lookup: impl Fn(u64) -> Option<(Address, ClientOptions)> + Send + Sync + 'static,
    ) -> NodeLinks {
        NodeLinks {
            id,
            send_commands: Box::new(send_commands),
            lookup: Arc::new(lookup),
            links: Mutex::default(),
        }
    }

    fn link(&self, to: u64) -> Arc<NodeLink> {
        let mut links = lock(&self.links);
        let link = links.entry(to).or_insert_with(|| {
            let (id, lookup) = (self.id, Arc::clone(&self.lookup));
            NodeLink::start(to, move || {
                let (address, options) = lookup(to)?;
                let name = format!("{NODE_CLIENT}-{id}");
                Some((address, ClientOptions { name, connects_once: true, ..options }))
            })
        });
        Arc::clone(link)
    }
}

impl PeerNodes for NodeLinks {
    fn propose(&self, command: &ControlCommand<'_>) -> Result<ControlReply, ClusterCommandError> {
        let none = || Err(ClusterCommandError::Away("the cluster did not respond".to_owned()));
        self.propose_all(std::slice::from_ref(command)).pop().unwrap_or_else(none)
    }

    fn propose_all(&self, commands: &[ControlCommand<'_>]) -> Vec<Result<ControlReply, ClusterCommandError>> {
        (self.send_commands)(commands)
    }

    fn forward_batch(&self, to: u64, run: InFlightBatch) {
        self.link(to).forward_batch(run);
    }

    fn feed_mirrors(&self, from: u64, feed: Arc<MirrorFeed>) {
        self.link(from).add_feed(feed);
    }

    fn join(&self, to: u64, membership: Arc<RemoteMembership>) {
        self.link(to).join(membership);
    }

    fn announce(&self, to: u64, presence: Arc<PublisherPresence>) {
        self.link(to).announce(presence);
    }

    fn query_interest(&self, to: u64, query: InterestQuery) {
        self.link(to).query_interest(query);
    }

    fn node_left(&self, node: u64) {
        let link = lock(&self.links).get(&node).cloned();
        link.into_iter().for_each(|link| link.disconnect());
    }

    fn node_joined(&self, node: u64) {
        let link = lock(&self.links).get(&node).cloned();
        link.into_iter().for_each(|link| link.allow_reconnect());
    }
}

impl Drop for NodeLinks {
    fn drop(&mut self) {
        lock(&self.links).values().for_each(|link| link.end());
    }
}

impl fmt::Debug for NodeLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeLinks").field("id", &self.id).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
