//! Publishers at this node of a topic whose state another node owns: the owner is told that there are some.

use std::sync::{Arc, Weak};

use dunlin_topic::Topic;

use super::way::Way;

/// That publishers of a topic are connected to this node, for the topic's owner to know as long as it is so.
#[derive(Debug)]
pub struct Presence {
    /// The subjects of the topic.
    pub pattern: Arc<str>,
    pub(super) way: Weak<Way>,
    pub(super) topic: Weak<Topic>,
    /// The owner that is told.
    pub(super) owner: u64,
}

impl Presence {
    /// Whether the owner is still to know of it.
    pub fn is_wanted(&self) -> bool {
        let (Some(way), Some(topic)) = (self.way.upgrade(), self.topic.upgrade()) else { return false };
        topic.publishers() > 0 && !way.is_over() && way.owner().0 == self.owner
    }

    /// The owner knows of it no more, or could not be told.
    pub fn ended(self: &Arc<Presence>) {
        if let Some(way) = self.way.upgrade() {
            way.presence_ended(self);
        }
    }
}
