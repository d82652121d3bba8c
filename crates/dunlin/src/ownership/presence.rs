//! Reports to the owner of a state topic that publishers of the topic are connected to this node, which is not the
//! owner.

use std::sync::{Arc, Weak};

use dunlin_topic::Topic;

use super::route::Route;

/// A report to a state topic's owner that publishers of the topic are connected to this node. The report counts until
/// [`PublisherPresence::ended`] is called.
#[derive(Debug)]
pub struct PublisherPresence {
    /// The pattern of the topic's subjects.
    pub pattern: Arc<str>,
    pub(super) route: Weak<Route>,
    pub(super) topic: Weak<Topic>,
    /// The owner that receives the report.
    pub(super) owner: u64,
}

impl PublisherPresence {
    /// Whether publishers are still connected here, and the topic still has this owner.
    pub fn is_needed(&self) -> bool {
        let (Some(route), Some(topic)) = (self.route.upgrade(), self.topic.upgrade()) else { return false };
        topic.publishers() > 0 && !route.is_deleted() && route.owner().0 == self.owner
    }

    /// Called when the owner no longer counts this node's publishers, or could not be reached.
    pub fn ended(self: &Arc<PublisherPresence>) {
        if let Some(route) = self.route.upgrade() {
            route.presence_ended(self);
        }
    }
}
