//! Lets a node leave its cluster: the node hands its volatile topics over to other nodes, and then ends its lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use dunlin_control::{ControlCommand, TopicKind};
use dunlin_topic::{SubscriberInfo, Topic};

use super::Ownership;
use super::feed::is_shared_mirror;
use super::route::Route;
use crate::clock::steady_ns;
use crate::node::Node;
use crate::registry::NameRanges;

/// The interval at which the leaving node checks whether the new owners have received all records.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// The leaving node waits at least this long, so that the new owners can begin to fetch records.
const FETCH_TIME_MIN: Duration = Duration::from_millis(200);

impl Ownership {
    /// Hands this node's volatile topics over to other nodes, and ends the node's membership. If a topic cannot be
    /// handed over within the time `within`, another node becomes its owner later. The new owner then lacks the records
    /// that it had not received by that time.
    pub fn leave(self: &Arc<Ownership>, within: Duration) {
        let until_ns = steady_ns().saturating_add(within.as_nanos() as u64);
        let moved = self.move_all(until_ns);
        let holds_any = moved.iter().any(|route| route.holds_records());
        let fetch_until_ns =
            steady_ns().saturating_add(if holds_any { FETCH_TIME_MIN.as_nanos() as u64 } else { 0 });
        let is_fetched = || steady_ns() >= fetch_until_ns && !moved.iter().any(|route| route.is_fetched());
        let groups_ended = || self.node_handle().is_none_or(|node| !node.has_ending_groups());
        while steady_ns() < until_ns && !(is_fetched() && groups_ended()) {
            thread::sleep(CHECK_INTERVAL);
        }
        self.is_leaving.store(true, Ordering::Release);
        self.lease_until_ns.store(0, Ordering::Release);
        let lease = self.enlisted.load(Ordering::Acquire);
        if lease != 0 && self.is_alive(self.id) {
            // If the command fails, the lease ends when its time to live has passed.
            let _ = self.peers.propose(&ControlCommand::Revoke { lease });
        }
    }

    fn move_all(self: &Arc<Ownership>, until_ns: u64) -> Vec<Arc<Route>> {
        let others: Vec<u64> = self.nodes().into_iter().filter(|&node| node != self.id).collect();
        let own = |route: &Arc<Route>| route.kind == TopicKind::Volatile && route.owner().0 == self.id;
        let own = self.routes().into_iter().filter(own);
        let to = others.iter().cycle();
        own.zip(to)
            .take_while(|_| steady_ns() < until_ns)
            .filter(|(route, to)| self.move_topic(&route.name, **to).is_ok())
            .map(|(route, _)| route)
            .collect()
    }
}

impl Node {
    /// Whether some shared mirror at another node has not yet read all records of a durable topic of this node. Mirrors
    /// of single subscribers do not count: they read only as fast as their subscriber.
    pub fn has_lagging_mirrors(&self) -> bool {
        let is_durable = |topic: &Topic| topic.config().durable.is_some();
        let is_behind = |subscriber: &SubscriberInfo| is_shared_mirror(subscriber) && subscriber.lag > 0;
        let durable =
            self.registry().page(None, "", usize::MAX, usize::MAX, &NameRanges::all(), is_durable).topics;
        durable.iter().any(|topic| topic.subscribers().iter().any(is_behind))
    }
}
