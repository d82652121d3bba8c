//! Removes a topic that was created for a record, if the topic refuses the record. When a record is published to a
//! subject without an owner, a node may create a topic. If the new topic then refuses the record, the empty topic would
//! take memory and appear in lists.
//!
//! Invariant: a topic that is removed in this way contains no record and has no other user.

use std::ops::Deref;
use std::sync::Arc;

use dunlin_topic::Topic;

use crate::node::Node;

/// The topic that owns a record's subject, and to which the record is therefore appended. If the topic was created for
/// this record, dropping the value removes the topic. A topic that has records or other users is kept.
#[derive(Debug)]
pub struct OwningTopic {
    topic: Arc<Topic>,
    created_by: Option<Node>,
}

impl OwningTopic {
    pub(crate) fn of(topic: Arc<Topic>) -> OwningTopic {
        OwningTopic { topic, created_by: None }
    }

    pub(crate) fn created(topic: Arc<Topic>, node: &Node) -> OwningTopic {
        OwningTopic { topic, created_by: Some(node.clone()) }
    }

    /// Returns the topic. From then on, the topic is kept even if it has refused the record.
    pub fn into_topic(mut self) -> Arc<Topic> {
        self.created_by = None;
        Arc::clone(&self.topic)
    }
}

impl Deref for OwningTopic {
    type Target = Arc<Topic>;

    fn deref(&self) -> &Arc<Topic> {
        &self.topic
    }
}

impl Drop for OwningTopic {
    fn drop(&mut self) {
        if let Some(node) = self.created_by.take() {
            node.remove_if_unused(&self.topic);
        }
    }
}
