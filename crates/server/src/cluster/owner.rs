//! Describes the owner of a topic for operators, who see it in commands and over HTTP.

use dunlin::topic::Topic;
use serde::Serialize;

use super::member::ClusterMember;

/// The node that owns a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TopicOwner {
    /// The owner's number.
    node: u64,
    /// The epoch of this ownership, as far as this node knows.
    epoch: u32,
    /// Whether this node itself is the owner.
    here: bool,
    /// Whether the owner is alive, as far as this node knows.
    alive: bool,
    /// The address at which the owner serves Dunlin's own protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

impl ClusterMember {
    /// Returns the owner of a topic; `None` while this node does not know the owner.
    pub(crate) fn owner_of(&self, topic: &Topic) -> Option<TopicOwner> {
        let ownership = self.ownership()?;
        let (node, epoch) = ownership.owner_of(topic);
        let address = self.record(node).and_then(|mut record| record.listeners.remove("tcp"));
        let (here, alive) = (node == ownership.id(), self.is_alive(node));
        Some(TopicOwner { node, epoch, here, alive, address })
    }
}

impl TopicOwner {
    /// The owner's number.
    pub(crate) fn node(&self) -> u64 {
        self.node
    }

    /// Returns the owner's properties as pairs of a name and a value.
    pub(crate) fn settings(self) -> Vec<(String, String)> {
        let TopicOwner { node, epoch, here, alive, address } = self;
        let is = if here {
            "here"
        } else if alive {
            "elsewhere"
        } else {
            "down"
        };
        let mut settings = vec![
            ("owner".to_owned(), node.to_string()),
            ("owner.epoch".to_owned(), epoch.to_string()),
            ("owner.is".to_owned(), is.to_owned()),
        ];
        settings.extend(address.map(|address| ("owner.address".to_owned(), address)));
        settings
    }
}
