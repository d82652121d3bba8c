//! Who owns a topic, as operators are told through the doors.

use dunlin::topic::Topic;
use serde::Serialize;

use super::seat::Seat;

/// The node that has a topic's records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Owner {
    /// Its number.
    node: u64,
    /// The epoch that it writes, as far as is known here.
    epoch: u32,
    /// It is the node that was asked.
    here: bool,
    /// It takes part at present.
    alive: bool,
    /// Its door `tcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

impl Seat {
    /// Who owns a topic; `None` before this is known.
    pub(crate) fn owner_of(&self, topic: &Topic) -> Option<Owner> {
        let ownership = self.ownership()?;
        let (node, epoch) = ownership.owner_of(topic);
        let address = self.record(node).and_then(|mut record| record.doors.remove("tcp"));
        let (here, alive) = (node == ownership.id(), self.is_alive(node));
        Some(Owner { node, epoch, here, alive, address })
    }
}

impl Owner {
    /// Its number.
    pub(crate) fn node(&self) -> u64 {
        self.node
    }

    /// As settings that have names.
    pub(crate) fn settings(self) -> Vec<(String, String)> {
        let Owner { node, epoch, here, alive, address } = self;
        let is = if here {
            "here"
        } else if alive {
            "elsewhere"
        } else {
            "away"
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
