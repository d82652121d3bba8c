//! Finds the logs from which this node feeds the mirrors of other nodes.
//!
//! A node that lags may request a topic that was deleted, and perhaps created again with the same name. A feed
//! therefore names an epoch of its topic's placement: the epochs of a later topic with this name are all higher. This
//! node keeps its deleted topics for a while, so that such a node still receives their last records.
//!
//! Limits: `deleted_topic_age_max` and `deleted_topics_bytes_max` of [`OwnershipLimits`](super::OwnershipLimits). If
//! the node's memory budget has no room, the node first gives up the deleted topics.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, Weak};

use dunlin_topic::{ReclaimableMemory, SubscribeError, Topic};

use super::{Ownership, lock};
use crate::clock::steady_ns;
use crate::node::Node;
use crate::registry::cost_of;
use crate::select::SelectedLogs;

/// How many deleted topics a charge without room looks at to find one that nobody reads.
const RECLAIM_TRIES_MAX: usize = 64;

/// The deleted topics that this node keeps.
#[derive(Debug, Default)]
pub(super) struct DeletedTopics(Mutex<KeptTopics>);

#[derive(Debug, Default)]
struct KeptTopics {
    /// The topics, by name and first epoch.
    topics: BTreeMap<(String, u32), DeletedTopic>,
    /// The keys of `topics`, oldest first.
    order: VecDeque<(String, u32)>,
    bytes: u64,
    /// Topics whose segments were freed. The next housekeeping drops them, because it holds no locks.
    emptied: Vec<Arc<Topic>>,
}

#[derive(Debug)]
struct DeletedTopic {
    topic: Arc<Topic>,
    /// The epochs of the topic's placements.
    epochs: RangeInclusive<u32>,
    bytes: u64,
    until_ns: u64,
}

impl DeletedTopic {
    /// Whether only this value refers to the topic. Other threads then cannot hold the locks of its logs.
    fn is_unused(&self) -> bool {
        let logs = self.topic.logs();
        Arc::strong_count(&self.topic) == 1 && logs.iter().all(|log| Arc::strong_count(log) == 1)
    }
}

impl KeptTopics {
    fn add(&mut self, name: &str, topic: DeletedTopic) {
        let key = (name.to_owned(), *topic.epochs.start());
        self.bytes += topic.bytes;
        match self.topics.insert(key.clone(), topic) {
            Some(replaced) => self.bytes -= replaced.bytes,
            None => self.order.push_back(key),
        }
    }

    fn remove(&mut self, index: usize) -> Option<DeletedTopic> {
        let key = self.order.remove(index)?;
        let removed = self.topics.remove(&key)?;
        self.bytes -= removed.bytes;
        Some(removed)
    }

    /// Removes and returns the oldest topics while they are beyond a limit. The caller drops them without the lock.
    fn take_oldest_while(
        &mut self,
        is_beyond_limit: impl Fn(&KeptTopics, &DeletedTopic) -> bool,
    ) -> Vec<DeletedTopic> {
        let mut taken = Vec::new();
        loop {
            match self.order.front().and_then(|key| self.topics.get(key)) {
                Some(oldest) if is_beyond_limit(self, oldest) => taken.extend(self.remove(0)),
                _ => return taken,
            }
        }
    }

    fn get(&self, name: &str, epoch: u32) -> Option<&DeletedTopic> {
        let ((known, _), found) = self.topics.range(..=(name.to_owned(), epoch)).next_back()?;
        (known == name && found.epochs.contains(&epoch)).then_some(found)
    }
}

impl ReclaimableMemory for DeletedTopics {
    fn reclaim(&self) -> bool {
        let mut kept = lock(&self.0);
        let is_unused = |key: &(String, u32)| kept.topics.get(key).is_some_and(DeletedTopic::is_unused);
        let index = kept.order.iter().take(RECLAIM_TRIES_MAX).position(is_unused);
        let Some(unused) = index.and_then(|index| kept.remove(index)) else { return false };
        unused.topic.logs().iter().for_each(|log| log.free_segments());
        kept.emptied.push(unused.topic);
        true
    }
}

/// The placement of a durable topic that this node owns.
#[derive(Debug)]
pub(super) struct DurablePlacement {
    pub(super) topic: Weak<Topic>,
    pub(super) epoch: u32,
}

impl Ownership {
    /// Keeps a topic of this node that is about to be deleted, unless the topic alone exceeds the limit. Call this
    /// before the topic becomes unknown.
    pub(super) fn keep_for_feeds(&self, name: &str) {
        let bytes_max = self.limits.deleted_topics_bytes_max;
        if self.nodes().iter().any(|&node| node != self.id)
            && let Some((topic, epochs)) = self.own_topic(name)
        {
            let of_logs: u64 = topic.logs().iter().map(|log| log.info().bytes).sum();
            let bytes = of_logs + cost_of(name, topic.config().partitions) as u64;
            let until_ns = steady_ns().saturating_add(self.limits.deleted_topic_age_max.as_nanos() as u64);
            if bytes <= bytes_max {
                let dropped = {
                    let mut kept = lock(&self.deleted_topics.0);
                    kept.add(name, DeletedTopic { topic, epochs, bytes, until_ns });
                    kept.take_oldest_while(|kept, _| kept.bytes > bytes_max)
                };
                drop(dropped);
            }
        }
        // Only now, so that a feed finds the topic at any moment.
        lock(&self.own_durable_topics).remove(name);
    }

    /// The topic with this name if this node owns it, and the epochs of its placements.
    fn own_topic(&self, name: &str) -> Option<(Arc<Topic>, RangeInclusive<u32>)> {
        let durable = lock(&self.own_durable_topics)
            .get(name)
            .and_then(|placed| Some((placed.topic.upgrade()?, placed.epoch..=placed.epoch)));
        durable.or_else(|| {
            let route = self.route(name).filter(|route| route.owner().0 == self.id)?;
            Some((route.topic()?, route.epochs()))
        })
    }

    /// Drops the deleted topics whose time has passed.
    pub(crate) fn drop_expired_topics(&self) {
        let now_ns = steady_ns();
        let dropped = {
            let mut kept = lock(&self.deleted_topics.0);
            let expired = kept.take_oldest_while(|_, oldest| oldest.until_ns <= now_ns);
            (expired, std::mem::take(&mut kept.emptied))
        };
        drop(dropped);
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
        let kept = lock(&self.deleted_topics.0);
        let found = kept.get(name, epoch).filter(|found| found.until_ns > steady_ns())?;
        Some(Arc::clone(&found.topic))
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
                "topic {topic:?}: this node does not have the topic, or does not know its placement of epoch \
                 {epoch} yet"
            ))
        };
        let logs = found.ok_or_else(unknown)?.logs().iter().map(|log| (Arc::clone(log), None)).collect();
        Ok(SelectedLogs::complete(logs))
    }
}
