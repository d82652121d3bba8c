//! A node that ends: its volatile topics go to others with all that they hold, and then it takes part no more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use dunlin_control::{Command, Kind};
use dunlin_topic::{ReaderInfo, Topic};

use super::way::Way;
use super::{Ownership, is_mirror};
use crate::clock::steady_ns;
use crate::node::Node;
use crate::registry::Stretches;

/// Between two looks whether the others have what they are to have.
const LOOK: Duration = Duration::from_millis(5);
/// How long another takes at least to come for a topic's records.
const COME_MIN: Duration = Duration::from_millis(200);

impl Ownership {
    /// Has others own the node's volatile topics, and takes part no more. Those that are not moved within this time get other
    /// owners all the same, which have of them what they have read before.
    pub fn leave(self: &Arc<Ownership>, within: Duration) {
        let until_ns = steady_ns().saturating_add(within.as_nanos() as u64);
        let moved = self.move_all(until_ns);
        let holds_any = moved.iter().any(|way| way.holds_records());
        let come_ns = steady_ns().saturating_add(if holds_any { COME_MIN.as_nanos() as u64 } else { 0 });
        let is_fetched = || steady_ns() >= come_ns && !moved.iter().any(|way| way.is_fetched());
        let is_given_out = || self.embedded().is_none_or(|node| !node.has_ending_groups());
        while steady_ns() < until_ns && !(is_fetched() && is_given_out()) {
            thread::sleep(LOOK);
        }
        self.is_leaving.store(true, Ordering::Release);
        self.lease_until_ns.store(0, Ordering::Release);
        let lease = self.enlisted.load(Ordering::Acquire);
        if lease != 0 && self.is_alive(self.id) {
            // Else it ends by itself a little later.
            let _ = self.peers.ask(&Command::Revoke { lease });
        }
    }

    fn move_all(self: &Arc<Ownership>, until_ns: u64) -> Vec<Arc<Way>> {
        let others: Vec<u64> = self.nodes().into_iter().filter(|&node| node != self.id).collect();
        let own = |way: &Arc<Way>| way.kind == Kind::Volatile && way.owner().0 == self.id;
        let own = self.ways().into_iter().filter(own);
        let to = others.iter().cycle();
        own.zip(to)
            .take_while(|_| steady_ns() < until_ns)
            .filter(|(way, to)| self.move_topic(&way.name, **to).is_ok())
            .map(|(way, _)| way)
            .collect()
    }
}

impl Node {
    /// Whether another node has yet to be sent records of a durable topic that its subscribers read from this node.
    pub fn owes_other_nodes(&self) -> bool {
        let is_durable = |topic: &Topic| topic.config().durable.is_some();
        let is_behind = |reader: &ReaderInfo| is_mirror(reader) && reader.behind > 0;
        let durable = self.registry().page(None, "", usize::MAX, &Stretches::all(), is_durable).topics;
        durable.iter().any(|topic| topic.readers().iter().any(is_behind))
    }
}
