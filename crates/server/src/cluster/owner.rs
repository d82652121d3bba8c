//! The owner of a topic, as commands and HTTP report it to operators.

use dunlin::topic::Topic;
use serde::Serialize;

use super::member::ClusterMember;

/// The node that owns a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TopicOwner {
    /// The node's number.
    node: u64,
    /// The epoch of the owner, as far as this node knows.
    epoch: u32,
    /// Whether this node is the owner.
    here: bool,
    /// Whether the owner is alive.
    alive: bool,
    /// The address of the owner's listener for Dunlin's own protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

impl ClusterMember {
    /// The owner of a topic; `None` before it is known.
    pub(crate) fn owner_of(&self, topic: &Topic) -> Option<TopicOwner> {
        let ownership = self.ownership()?;
        let (node, epoch) = ownership.owner_of(topic);
        let address = self.record(node).and_then(|mut record| record.listeners.remove("tcp"));
        let (here, alive) = (node == ownership.id(), self.is_alive(node));
        Some(TopicOwner { node, epoch, here, alive, address })
    }
}

impl TopicOwner {
    /// The node's number.
    pub(crate) fn node(&self) -> u64 {
        self.node
    }

    /// The owner as pairs of names and values.
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
