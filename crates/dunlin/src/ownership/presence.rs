//! Reports to the owner of a state topic that publishers of the topic are connected to this node.

use std::sync::{Arc, Weak};

use dunlin_topic::Topic;

use super::route::Route;

/// Informs a state topic's owner whether publishers of the topic are connected to this node.
#[derive(Debug)]
pub struct PublisherPresence {
    /// The subjects of the topic.
    pub pattern: Arc<str>,
    pub(super) route: Weak<Route>,
    pub(super) topic: Weak<Topic>,
    /// The owner that receives the report.
    pub(super) owner: u64,
}

impl PublisherPresence {
    /// Whether the owner still needs to know about the publishers.
    pub fn is_needed(&self) -> bool {
        let (Some(route), Some(topic)) = (self.route.upgrade(), self.topic.upgrade()) else { return false };
        topic.publishers() > 0 && !route.is_deleted() && route.owner().0 == self.owner
    }

    /// Called when the owner has stopped counting the publishers, or could not be reached.
    pub fn ended(self: &Arc<PublisherPresence>) {
        if let Some(route) = self.route.upgrade() {
            route.presence_ended(self);
        }
    }
}
