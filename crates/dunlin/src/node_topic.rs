//! The topic `$node`, in which each node publishes its own status. Each node has its own topic `$node`, which other
//! nodes do not see. The topic keeps the last record of each subject (reducer `last`), so that a new subscriber
//! receives the complete status. Users with the permission for metrics of the whole node may read it. The crate
//! `server` publishes the records, under `$node.ID.KIND`: the node's number and the kind of report.

use std::sync::Arc;

use dunlin_topic::{Pattern, ReducerConfig, Retention, Topic, TopicConfig};

use crate::clock::now_ns;
use crate::error::TopicError;
use crate::node::Node;

/// The name of the topic in which a node publishes its own status.
pub const NODE_TOPIC: &str = "$node";
const PATTERN: &str = "$node.>";
/// The size of the topic's history, bytes. If a subscriber has more unread bytes than this, it receives only the last
/// record of each subject.
const HISTORY_BYTES: u64 = 4 << 20;

/// Whether the pattern begins with `$node.`, so that it selects subjects of this topic.
pub(crate) fn is_node_topic_pattern(pattern: &str) -> bool {
    pattern.strip_prefix(NODE_TOPIC).is_some_and(|rest| rest.starts_with('.'))
}

impl Node {
    /// The topic `$node` of this node. The first call creates it.
    pub fn node_topic(&self) -> Result<Arc<Topic>, TopicError> {
        if let Some(topic) = self.registry().get(NODE_TOPIC) {
            return Ok(topic);
        }
        let config = TopicConfig {
            pattern: Some(PATTERN.to_owned()),
            retention: Retention { bytes: HISTORY_BYTES, ..Retention::default() },
            reducer: Some(ReducerConfig { kind: "last".to_owned(), options: Default::default() }),
            limits: self.config().limits.topic,
            ..TopicConfig::default()
        };
        let epoch = || self.next_epoch(NODE_TOPIC, now_ns());
        match self.create_local(NODE_TOPIC, Pattern::parse(PATTERN)?, Arc::new(config), epoch) {
            // Another caller has created the topic meanwhile.
            Err(TopicError::Exists(_)) => {
                self.registry().get(NODE_TOPIC).ok_or_else(|| TopicError::Reserved(NODE_TOPIC.to_owned()))
            }
            created => created,
        }
    }
}
