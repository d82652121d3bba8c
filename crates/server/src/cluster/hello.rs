//! The handshake of a connection between two nodes. Each side identifies itself, and the accepting side may refuse the
//! connection.

use serde::{Deserialize, Serialize};

use super::files::Incarnation;

/// This build's version of the protocol between nodes. A node accepts its own version and the version before it.
pub(super) const VERSION: u32 = 1;
/// The oldest version of the protocol that this build accepts.
const VERSION_OLDEST: u32 = 1;

/// Defines what a connection between two nodes is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Purpose {
    /// The connection carries Raft messages.
    Control,
    /// The connection carries requests to administer the cluster.
    Admin,
    /// The connection carries the request of a joining node.
    Join,
    /// The connection registers a node's new start.
    Start,
}

/// The first message on a connection between two nodes. The connecting side sends it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ClusterHello {
    pub(super) version: u32,
    pub(super) release: String,
    pub(super) purpose: Purpose,
    /// Identifies the current run of the connecting node, since its last start; `None` for joining nodes and
    /// administration.
    pub(super) now: Option<Incarnation>,
    pub(super) before: Option<Incarnation>,
    /// The number of task shards with which the connecting node is configured.
    #[serde(default = "default_shards")]
    pub(super) shards: u8,
    /// Whether the connection carries large messages. The receiver then serves the connection on a thread that handles
    /// no heartbeats or votes.
    #[serde(default)]
    pub(super) is_bulk: bool,
}

/// The value of the field `shards` in messages of older nodes, which do not have this field.
pub(super) fn default_shards() -> u8 {
    1
}

/// The accepting side's reply to a [`ClusterHello`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ClusterWelcome {
    pub(super) version: u32,
    pub(super) release: String,
    pub(super) node: u64,
    /// Identifies the current run of the accepting node, since its last start.
    pub(super) now: Option<Incarnation>,
    pub(super) before: Option<Incarnation>,
    pub(super) refused: Option<HelloRefusal>,
}

/// Explains why a node refuses a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HelloRefusal {
    /// Whether the refusal is permanent, so that a retry cannot succeed.
    pub(super) for_good: bool,
    pub(super) why: String,
}

impl HelloRefusal {
    pub(super) fn permanent(why: String) -> HelloRefusal {
        HelloRefusal { for_good: true, why }
    }

    pub(super) fn temporary(why: String) -> HelloRefusal {
        HelloRefusal { for_good: false, why }
    }
}

/// Checks that this build supports the peer's version of the protocol.
pub(super) fn check_version(version: u32, release: &str) -> Result<(), HelloRefusal> {
    if version < VERSION_OLDEST {
        return Err(HelloRefusal::permanent(format!(
            "dunlin {release} is too old for this cluster: it speaks version {version} of the protocol \
             between nodes, and {VERSION_OLDEST} is the oldest that dunlin {} understands. A node cannot go \
             back to an older release: start the node with the newer release",
            super::RELEASE
        )));
    }
    if version > VERSION {
        return Err(HelloRefusal::temporary(format!(
            "dunlin {release} is newer than a node of this cluster ({}, version {VERSION} of the protocol between nodes, not {version}): \
             upgrade one release after another, every node before the next release",
            super::RELEASE
        )));
    }
    Ok(())
}

/// Checks that a node is configured with the number of task shards that the cluster has.
pub(super) fn check_shards(shards: u8, cluster_shards: u8) -> Result<(), HelloRefusal> {
    if shards == cluster_shards {
        return Ok(());
    }
    Err(HelloRefusal::permanent(format!(
        "this cluster has {cluster_shards} shards of tasks, not {shards}: set tasks.shards = {cluster_shards}. The number of shards is fixed when a cluster is created"
    )))
}

/// Checks that a connecting node's start is not older than the last start that the cluster knows. If it is older, the
/// node runs on an old copy of its directory. Such a node may have forgotten its votes, so it is refused.
pub(super) fn check_incarnation(
    node: u64,
    (now, before): (Option<&Incarnation>, Option<&Incarnation>),
    known: &Incarnation,
) -> Result<(), HelloRefusal> {
    let follows = |start: &Incarnation| start == known || start.number > known.number;
    if now.into_iter().chain(before).any(follows) {
        return Ok(());
    }
    Err(HelloRefusal::permanent(format!(
        "the directory of node {node} is stale: the cluster recorded start number {} of the node, but the \
         last start from this directory was number {}. The directory is an older copy, or the node was \
         later started from a copy of the directory. Start the node with its latest directory; if that \
         directory is lost, run `dunlin cluster remove {node}`, empty this directory, and let the node join \
         anew",
        known.number,
        now.map_or(0, |now| now.number)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incarnation(number: u64, mark: &str) -> Incarnation {
        Incarnation { number, mark: mark.to_owned() }
    }

    #[test]
    fn cluster_refuses_a_node_with_a_copied_data_directory() {
        let known = incarnation(5, "e");
        let check = |now: Incarnation, before: Option<Incarnation>| {
            check_incarnation(3, (Some(&now), before.as_ref()), &known).is_ok()
        };
        assert!(check(incarnation(5, "e"), Some(incarnation(4, "d"))), "the very one");
        assert!(check(incarnation(6, "f"), Some(incarnation(5, "e"))), "the next");
        assert!(check(incarnation(8, "h"), Some(incarnation(7, "g"))), "of two that nobody heard of");
        assert!(!check(incarnation(4, "x"), Some(incarnation(3, "c"))), "an old copy");
        assert!(!check(incarnation(5, "x"), Some(incarnation(4, "d"))), "a copy made before the last start");
        assert!(!check(incarnation(1, "x"), None), "a directory made by hand");
    }

    #[test]
    fn node_with_another_shard_count_is_refused() {
        assert!(check_shards(2, 2).is_ok());
        let refused = check_shards(1, 2).unwrap_err();
        assert!(refused.for_good && refused.why.contains("set tasks.shards = 2"), "{refused:?}");
        let hello = r#"{"version":1,"release":"0.1.0","purpose":"join","now":null,"before":null}"#;
        assert_eq!(serde_json::from_str::<ClusterHello>(hello).unwrap().shards, 1);
    }

    #[test]
    fn node_of_another_version_is_refused_with_advice() {
        assert!(check_version(VERSION, "1").is_ok());
        let old = check_version(VERSION_OLDEST - 1, "0.0.9").unwrap_err();
        assert!(old.for_good && old.why.contains("0.0.9"), "{old:?}");
        let newer = check_version(VERSION + 1, "9.0.0").unwrap_err();
        assert!(!newer.for_good && newer.why.contains("upgrade one release after another"), "{newer:?}");
    }
}
