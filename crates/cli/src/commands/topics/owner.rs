//! The owner of a topic, according to the node to which a command is connected.

use serde_json::json;

/// The node that owns a topic, and whether this node is reachable.
pub struct Owner {
    node: u64,
    epoch: u32,
    /// Where the owner is, as seen from the queried node: `here` is the queried node itself, `elsewhere` another node,
    /// and `down` an unreachable node.
    status: String,
    address: Option<String>,
}

impl Owner {
    /// Reads the owner from a topic's settings; `None` if the node is not in a cluster.
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

    /// The owner's number, address, epoch and status as text.
    pub fn full_text(&self) -> String {
        let at = self.address.as_ref().map_or_else(String::new, |address| format!(" at {address}"));
        let status = match self.status.as_str() {
            "here" => "this node",
            "down" => "down; the number of its records is unknown",
            _ => "another node",
        };
        format!("node {}{at}, epoch {}: {status}", self.node, self.epoch)
    }

    pub fn object(&self) -> serde_json::Value {
        json!({"node": self.node, "epoch": self.epoch, "is": self.status, "address": self.address})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_printed_with_its_address_epoch_and_status() {
        let text = |status: &str| {
            let settings = [
                ("owner", "3"),
                ("owner.epoch", "7"),
                ("owner.is", status),
                ("owner.address", "127.0.0.1:4220"),
            ];
            let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
            Owner::of(&settings).expect("the settings name an owner").full_text()
        };
        let node = "node 3 at 127.0.0.1:4220, epoch 7: ";
        assert_eq!(text("here"), format!("{node}this node"));
        assert_eq!(text("elsewhere"), format!("{node}another node"));
        assert_eq!(text("down"), format!("{node}down; the number of its records is unknown"));
    }
}
