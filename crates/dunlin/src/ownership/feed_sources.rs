//! Finds the logs from which this node feeds the mirrors of other nodes.
//!
//! A node that lags may request a topic that was deleted, and perhaps created again with the same name. A feed
//! therefore names an epoch of its topic's placement: the epochs of a later topic with this name are all higher. This
//! node keeps its deleted topics for a while, so that such a node still receives their last records.
//!
//! Limits: `deleted_topic_age_max` and `deleted_topics_bytes_max` of [`OwnershipLimits`](super::OwnershipLimits).

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, Weak};

use dunlin_topic::{SubscribeError, Topic};

use super::{Ownership, lock};
use crate::clock::steady_ns;
use crate::node::Node;
use crate::registry::cost_of;
use crate::select::SelectedLogs;

/// The deleted topics that this node keeps, oldest first.
#[derive(Debug, Default)]
pub(super) struct DeletedTopics(Mutex<KeptTopics>);

#[derive(Debug, Default)]
struct KeptTopics {
    topics: VecDeque<DeletedTopic>,
    bytes: u64,
}

#[derive(Debug)]
struct DeletedTopic {
    topic: Arc<Topic>,
    /// The epochs of the topic's placements.
    epochs: RangeInclusive<u32>,
    bytes: u64,
    until_ns: u64,
}

impl KeptTopics {
    fn drop_oldest_while(&mut self, is_beyond_limit: impl Fn(&KeptTopics, &DeletedTopic) -> bool) {
        while self.topics.front().is_some_and(|oldest| is_beyond_limit(self, oldest)) {
            self.bytes -= self.topics.pop_front().map_or(0, |oldest| oldest.bytes);
        }
    }
}

/// The placement of a durable topic that this node owns.
#[derive(Debug)]
pub(super) struct DurablePlacement {
    pub(super) topic: Weak<Topic>,
    pub(super) epoch: u32,
}

impl Ownership {
    /// Keeps a topic of this node that is about to be deleted. Call this before the topic becomes unknown.
    pub(super) fn keep_for_feeds(&self, name: &str) {
        let durable = lock(&self.own_durable_topics).remove(name);
        let durable = durable.and_then(|placed| Some((placed.topic.upgrade()?, placed.epoch..=placed.epoch)));
        let routed = || {
            let route = self.route(name).filter(|route| route.owner().0 == self.id)?;
            Some((route.topic()?, route.epochs()))
        };
        let Some((topic, epochs)) = durable.or_else(routed) else { return };
        if self.nodes().iter().all(|&node| node == self.id) {
            return;
        }
        let of_logs: u64 = topic.logs().iter().map(|log| log.info().bytes).sum();
        let bytes = of_logs + cost_of(name, topic.config().partitions) as u64;
        let until_ns = steady_ns().saturating_add(self.limits.deleted_topic_age_max.as_nanos() as u64);
        let mut kept = lock(&self.deleted_topics.0);
        kept.bytes += bytes;
        kept.topics.push_back(DeletedTopic { topic, epochs, bytes, until_ns });
        kept.drop_oldest_while(|kept, _| kept.bytes > self.limits.deleted_topics_bytes_max);
    }

    /// Drops the deleted topics whose time has passed.
    pub(crate) fn drop_expired_topics(&self) {
        let now_ns = steady_ns();
        lock(&self.deleted_topics.0).drop_oldest_while(|_, oldest| oldest.until_ns <= now_ns);
    }

    fn topic_to_feed(&self, name: &str, epoch: u32) -> Option<Arc<Topic>> {
        if let Some(placed) = lock(&self.own_durable_topics).get(name)
            && placed.epoch == epoch
        {
            return placed.topic.upgrade();
        }
        if let Some(route) = self.route(name).filter(|route| route.epochs().contains(&epoch)) {
            return route.topic();
        }
        let now_ns = steady_ns();
        let kept = lock(&self.deleted_topics.0);
        let is_it = |kept: &&DeletedTopic| {
            kept.until_ns > now_ns && kept.epochs.contains(&epoch) && kept.topic.name() == name
        };
        kept.topics.iter().find(is_it).map(|kept| Arc::clone(&kept.topic))
    }
}

impl Node {
    /// Returns the logs from which this node feeds another node's mirror of the topic. `epoch` is an epoch of the
    /// topic's placement that the other node knows.
    ///
    /// # Errors
    /// [`SubscribeError::OwnerAway`] if this node does not have this topic, or does not know the placement yet.
    pub fn select_to_feed(&self, topic: &str, epoch: u32) -> Result<SelectedLogs, SubscribeError> {
        let found = self.ownership().and_then(|ownership| ownership.topic_to_feed(topic, epoch));
        let unknown = || {
            SubscribeError::OwnerAway(format!(
                "topic {topic:?}: this node does not have the topic that was placed in epoch {epoch}"
            ))
        };
        let logs = found.ok_or_else(unknown)?.logs().iter().map(|log| (Arc::clone(log), None)).collect();
        Ok(SelectedLogs { logs, newcomers: None })
    }
}
