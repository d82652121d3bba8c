//! The topic in which a node says how it is: `$node`, on every node its own, told to no other.
//!
//! It keeps the last of each kind of saying (fold `last`), so whoever comes late has all of them at once. Whoever may survey the
//! node reads it. What is said is the doors' affair; subjects are `$node.ID.WHAT`.

use std::sync::Arc;

use dunlin_topic::{FoldConfig, Pattern, Retention, Topic, TopicConfig};

use crate::clock::now_ns;
use crate::error::TopicError;
use crate::node::Node;

/// The topic's name.
pub const ITSELF: &str = "$node";
const PATTERN: &str = "$node.>";
/// Its history, bytes: who is further behind gets the last of each.
const HISTORY_BYTES: u64 = 4 << 20;

/// Whether a pattern is for what a node says of itself.
pub(crate) fn is_of_itself(pattern: &str) -> bool {
    pattern.strip_prefix(ITSELF).is_some_and(|rest| rest.starts_with('.'))
}

impl Node {
    /// The topic in which this node says how it is; it comes into being when it is first asked for.
    pub fn own_topic(&self) -> Result<Arc<Topic>, TopicError> {
        if let Some(topic) = self.registry().get(ITSELF) {
            return Ok(topic);
        }
        let config = TopicConfig {
            pattern: Some(PATTERN.to_owned()),
            retention: Retention { bytes: HISTORY_BYTES, ..Retention::default() },
            fold: Some(FoldConfig { kind: "last".to_owned(), options: Default::default() }),
            limits: self.config().limits.topic,
            ..TopicConfig::default()
        };
        let epoch = || self.next_epoch(ITSELF, now_ns());
        match self.create_here(ITSELF, Pattern::parse(PATTERN)?, Arc::new(config), epoch) {
            // Somebody else was faster.
            Err(TopicError::Exists(_)) => {
                self.registry().get(ITSELF).ok_or_else(|| TopicError::Reserved(ITSELF.to_owned()))
            }
            made => made,
        }
    }
}
