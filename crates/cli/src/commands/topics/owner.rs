//! The owner of a topic, as the queried node knows it.

use serde_json::json;

/// A topic's owner node and whether it is reachable, as a command prints them.
pub struct Owner {
    node: u64,
    epoch: u32,
    /// Where the owner is, seen from the queried node: `here`, `elsewhere` or `down`.
    status: String,
    address: Option<String>,
}

impl Owner {
    /// Reads the owner from a topic's settings; `None` for a node without a cluster.
    pub fn of(settings: &[(String, String)]) -> Option<Owner> {
        let get =
            |name: &str| settings.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
        Some(Owner {
            node: get("owner")?.parse().ok()?,
            epoch: get("owner.epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0),
            status: get("owner.is").unwrap_or_default().to_owned(),
            address: get("owner.address").map(str::to_owned),
        })
    }

    pub fn short_text(&self) -> String {
        let down = if self.status == "down" { ", down" } else { "" };
        format!("node {}, epoch {}{down}", self.node, self.epoch)
    }

    /// The owner in a sentence, with a note that the counts are those of the queried node.
    pub fn full_text(&self) -> String {
        let at = self.address.as_ref().map_or_else(String::new, |address| format!(" at {address}"));
        let status = match self.status.as_str() {
            "here" => "this node",
            "down" => "down; the rest describes this node's copy",
            _ => "another node; the rest describes this node's copy",
        };
        format!("node {}{at}, epoch {}: {status}", self.node, self.epoch)
    }

    pub fn object(&self) -> serde_json::Value {
        json!({"node": self.node, "epoch": self.epoch, "is": self.status, "address": self.address})
    }
}
