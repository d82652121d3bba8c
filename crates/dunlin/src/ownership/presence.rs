//! Tells the owner of a state topic that this node has publishers.

use std::sync::{Arc, Weak};

use dunlin_topic::Topic;

use super::way::Way;

/// Reports to a topic's owner that publishers are connected to this node.
#[derive(Debug)]
pub struct Presence {
    /// The subjects of the topic.
    pub pattern: Arc<str>,
    pub(super) way: Weak<Way>,
    pub(super) topic: Weak<Topic>,
    /// The owner to notify.
    pub(super) owner: u64,
}

impl Presence {
    /// Whether the owner should still know of the publishers.
    pub fn is_wanted(&self) -> bool {
        let (Some(way), Some(topic)) = (self.way.upgrade(), self.topic.upgrade()) else { return false };
        topic.publishers() > 0 && !way.is_over() && way.owner().0 == self.owner
    }

    /// The owner no longer counts the publishers, or could not be reached.
    pub fn ended(self: &Arc<Presence>) {
        if let Some(way) = self.way.upgrade() {
            way.presence_ended(self);
        }
    }
}
