//! The topics of a host's regions, at its node.

use dunlin_space::{Behaviour, RegionId, RegionSetup, reducer_config, topic_of};
use dunlin_topic::{Publisher, Retention, TopicConfig};

use super::{Host, HostError, RECORD_BYTES_MAX};
use crate::error::TopicError;
use crate::node::Node;

impl<const D: usize, B: Behaviour<D> + Clone> Host<D, B> {
    /// Creates the topic of a region before other processes learn that the region has begun. Otherwise, a subscriber
    /// that comes before the region could create the topic without a reducer.
    pub fn prepare(&self, region: RegionId) -> Result<(), HostError> {
        let Some(topics) = &self.topics else { return Ok(()) };
        let name = topic_of(&topics.world, region);
        let config = TopicConfig {
            retention: Retention { bytes: topics.history_bytes, ..Retention::default() },
            record_bytes_max: RECORD_BYTES_MAX,
            reducer: Some(reducer_config(&RegionSetup { region, ..self.setup.clone() })),
            ..TopicConfig::default()
        };
        let result = match topics.node.create_topic(&name, config.clone(), true) {
            // A subscriber that came earlier has created the topic without a reducer. The topic is empty, so it is
            // replaced.
            Err(TopicError::Exists(_)) if is_empty_plain(&topics.node, &name) => {
                let deleted = topics.node.delete_topic(&name);
                deleted.and_then(|()| topics.node.create_topic(&name, config, true))
            }
            result => result,
        };
        result.map(drop).map_err(|why| HostError::Topic { region, why })
    }

    pub(super) fn publisher(&self, region: RegionId) -> Result<Option<Publisher>, HostError> {
        let Some(topics) = &self.topics else { return Ok(None) };
        self.prepare(region)?;
        let publisher = topics.node.publisher(&topic_of(&topics.world, region));
        publisher.map(Some).map_err(|why| HostError::Publish { region, why })
    }

    /// Deletes the topic of a region that moved to another node, so that its subscribers are notified. In a cluster the
    /// topic stays, because all nodes share it.
    pub fn delete_topic(&self, region: RegionId) {
        let Some(topics) = &self.topics else { return };
        let name = topic_of(&topics.world, region);
        let is_here = self.regions.contains_key(&region);
        if !is_here && topics.node.ownership().is_none() && topics.node.registry().get(&name).is_some() {
            // This fails if another caller has deleted the topic in the meantime.
            let _ = topics.node.delete_topic(&name);
        }
    }
}

/// Whether a topic has neither a reducer nor a record.
fn is_empty_plain(node: &Node, name: &str) -> bool {
    node.registry().get(name).is_some_and(|topic| {
        topic.config().reducer.is_none() && topic.logs().iter().all(|log| log.last().seq == 0)
    })
}
