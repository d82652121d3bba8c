//! The topic that a record goes to, and what becomes of one that was made for it alone.
//!
//! A node may create the topic of a subject that nobody owns. A record that is refused after all must not leave it behind:
//! a topic takes memory, and whoever lists topics would see it.
//!
//! Invariant: what is taken back holds no record, and nobody else has come to use it.

use std::ops::Deref;
use std::sync::Arc;

use dunlin_topic::Topic;

use crate::node::Node;

/// The owner of a subject. One that was made for this is taken back when this is dropped, unless something
/// was published to it, or somebody else uses it.
#[derive(Debug)]
pub struct Owner {
    topic: Arc<Topic>,
    made_by: Option<Node>,
}

impl Owner {
    pub(crate) fn of(topic: Arc<Topic>) -> Owner {
        Owner { topic, made_by: None }
    }

    pub(crate) fn made(topic: Arc<Topic>, node: &Node) -> Owner {
        Owner { topic, made_by: Some(node.clone()) }
    }

    /// The topic, to stay whatever becomes of the record.
    pub fn keep(mut self) -> Arc<Topic> {
        self.made_by = None;
        Arc::clone(&self.topic)
    }
}

impl Deref for Owner {
    type Target = Arc<Topic>;

    fn deref(&self) -> &Arc<Topic> {
        &self.topic
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(node) = self.made_by.take() {
            node.take_back(&self.topic);
        }
    }
}
