//! Creates and deletes the topics to which a host publishes its regions.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_space::{Behaviour, Region, RegionId, RegionSetup, reducer_config, topic_of};
use dunlin_topic::{Publish, Publisher, Retention, TopicConfig};

use super::{Host, HostError, HostedRegion, RECORD_BYTES_MAX};
use crate::error::TopicError;
use crate::node::Node;

impl<const D: usize, B: Behaviour<D> + Clone> Host<D, B> {
    /// Creates the topic of a region. Called before other processes learn that the region has begun. Otherwise, a
    /// subscriber could come first and create the topic without a reducer.
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
            // An early subscriber has created the topic without a reducer. The topic is empty, so replace it.
            Err(TopicError::Exists(_)) if is_empty_plain(&topics.node, &name) => {
                let deleted = topics.node.delete_topic(&name);
                deleted.and_then(|()| topics.node.create_topic(&name, config, true))
            }
            result => result,
        };
        result.map(drop).map_err(|why| HostError::Topic { region, why })
    }

    /// Opens the topic of a region, and publishes the region's whole state to it. The topic may already have the state
    /// of an earlier owner of the region, which the whole state replaces.
    pub(super) fn open_topic(
        &self,
        id: RegionId,
        region: &Region<D, B>,
    ) -> Result<Option<Publisher>, HostError> {
        let Some(topics) = &self.topics else { return Ok(None) };
        self.prepare(id)?;
        let refused = |why| HostError::Publish { region: id, why };
        let mut publisher = topics.node.publisher(&topic_of(&topics.world, id)).map_err(refused)?;
        publisher.publish(Bytes::from(region.state().whole())).map_err(refused)?;
        Ok(Some(publisher))
    }

    /// If a client has deleted topics of this host's regions, or a region that was taken over has no topic yet, creates
    /// these topics, each with the region's whole state. A new topic begins a new epoch. Returns the regions of these
    /// topics, each with the error if its topic cannot be created. Call this between two ticks.
    pub fn restore_topics(&mut self) -> Vec<(RegionId, Result<(), HostError>)> {
        let regions = self.regions_without_topic();
        if !regions.is_empty() {
            // Publish the earlier changes first: the whole states contain these changes, so the changes must not follow
            // the states.
            self.publish();
        }
        regions.into_iter().map(|region| (region, self.restore_topic(region))).collect()
    }

    /// The regions of this host that have no topic, or whose topics were deleted. A later topic with the same name does
    /// not count as the region's topic.
    fn regions_without_topic(&self) -> Vec<RegionId> {
        let Some(topics) = &self.topics else { return Vec::new() };
        let has_topic = |region: RegionId, hosted: &HostedRegion<D, B>| {
            let Some(publisher) = &hosted.publisher else { return false };
            let is_same = |topic: &Arc<_>| Arc::ptr_eq(topic, publisher.topic());
            topics.node.registry().with(&topic_of(&topics.world, region), is_same) == Some(true)
        };
        self.regions.iter().filter_map(|(id, hosted)| (!has_topic(*id, hosted)).then_some(*id)).collect()
    }

    fn restore_topic(&mut self, region: RegionId) -> Result<(), HostError> {
        let Some(hosted) = self.regions.get(&region) else { return Ok(()) };
        let publisher = self.open_topic(region, &hosted.region)?;
        if let Some(hosted) = self.regions.get_mut(&region) {
            (hosted.publisher, hosted.whole_from) = (publisher, None);
        }
        Ok(())
    }

    /// Deletes the topic of a region that has moved to another node, so that the topic's subscribers are notified. In a
    /// cluster, keeps the topic, because all nodes share it.
    pub fn delete_topic(&self, region: RegionId) {
        let Some(topics) = &self.topics else { return };
        let name = topic_of(&topics.world, region);
        let is_here = self.regions.contains_key(&region);
        if !is_here && topics.node.ownership().is_none() && topics.node.registry().get(&name).is_some() {
            // Ignore the error: another caller has deleted the topic meanwhile.
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
