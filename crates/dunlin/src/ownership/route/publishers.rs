//! Tells the owner of a state topic whether publishers of the topic are connected to this node.

use std::sync::Arc;
use std::time::Duration;

use dunlin_topic::Topic;

use super::Route;
use crate::clock::steady_ns;
use crate::ownership::presence::PublisherPresence;
use crate::ownership::{Ownership, housekeeper, lock};

/// How long publishers have to connect to a new owner. If none has connected by then, subscribers receive the notice
/// that the topic has no publisher.
const PUBLISHER_GRACE: Duration = Duration::from_secs(2);

impl Route {
    /// Whether publishers of the topic are connected to this node, and this node has not reported them to the topic's
    /// present owner. Always `false` for a topic that keeps no state.
    pub(super) fn has_unannounced_publishers(&self, topic: &Topic) -> bool {
        let state = lock(&self.state);
        let is_announced = state.presence.as_ref().is_some_and(|presence| presence.owner == state.owner);
        self.config.reducer.is_some() && topic.publishers() > 0 && !is_announced
    }

    pub(super) fn announce_publishers(&self, ownership: &Ownership, topic: &Arc<Topic>) {
        if !self.has_unannounced_publishers(topic) {
            return;
        }
        let presence = {
            let mut state = lock(&self.state);
            let presence = PublisherPresence {
                pattern: Arc::clone(&self.pattern),
                route: self.this.clone(),
                topic: Arc::downgrade(topic),
                owner: state.owner,
            };
            Arc::clone(state.presence.insert(Arc::new(presence)))
        };
        ownership.peers.announce(presence.owner, presence);
    }

    pub(in crate::ownership) fn presence_ended(&self, presence: &Arc<PublisherPresence>) {
        let ended = lock(&self.state).presence.take_if(|last| Arc::ptr_eq(last, presence));
        if ended.is_some()
            && let Some(ownership) = self.ownership.upgrade()
        {
            ownership.housekeeper.check_after(&self.this, housekeeper::PAUSE);
        }
    }

    /// Called when this node has become the owner. Gives the publishers of the previous owner time to connect.
    pub(super) fn begin_publisher_grace(&self) {
        let until_ns = steady_ns().saturating_add(PUBLISHER_GRACE.as_nanos() as u64);
        lock(&self.state).publishers_until_ns = Some(until_ns);
    }

    /// When the time for publishers to connect has passed, tells subscribers if the topic has no publisher.
    pub(super) fn count_returned_publishers(&self, ownership: &Ownership, topic: &Topic) {
        let Some(until_ns) = lock(&self.state).publishers_until_ns.filter(|_| self.config.reducer.is_some())
        else {
            return;
        };
        let remaining_ns = until_ns.saturating_sub(steady_ns());
        if remaining_ns > 0 {
            return ownership.housekeeper.check_after(&self.this, Duration::from_nanos(remaining_ns));
        }
        lock(&self.state).publishers_until_ns = None;
        topic.notify_publisher_change();
    }
}
