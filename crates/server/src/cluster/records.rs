//! Reads and writes the cluster's table of nodes and its join tokens. They are stored among the replicated keys, under
//! these system keys:
//!
//! | key | content |
//! |---|---|
//! | `$cluster/nodes/<id>` | [`NodeRecord`]: a member, or a removed node |
//! | `$cluster/tasks` | the number of the node that starts the Raft groups of the cluster's tasks; written once |
//! | `$cluster/next` | the number for the next node that joins; no number is assigned twice |
//! | `$cluster/tokens/<digest>` | a valid join token; if the token has an expiry time, a lease deletes the key at that time |
//!
//! The leader makes every member in this table a voter (`reconcile`).

use std::collections::BTreeMap;

use dunlin::state::{Compare, ComparedProperty, Comparison, ControlState, FoundKey, KeyItem, prefix_end};
use serde::{Deserialize, Serialize};

use super::files::Incarnation;

pub(super) const NEXT: &[u8] = b"$cluster/next";
pub(super) const TASKS: &[u8] = b"$cluster/tasks";
const ALL: &[u8] = b"$cluster/";
const NODES: &str = "$cluster/nodes/";
const TOKENS: &str = "$cluster/tokens/";

/// An entry in the cluster's table of nodes: a node's number, addresses and release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The node's number, which is never reused.
    pub node: u64,
    /// The address at which other nodes reach the node.
    pub address: String,
    /// The version of Dunlin that the node runs.
    pub release: String,
    /// The addresses of the node's listeners, by protocol. Tables that older builds stored have the name `doors` for
    /// this field.
    #[serde(alias = "doors")]
    pub listeners: BTreeMap<String, String>,
    /// The last registered start of the node; `None` before the first registration.
    pub(super) incarnation: Option<Incarnation>,
    /// Why the node was removed; `None` for a node that is still a member.
    pub removed: Option<String>,
}

/// A join token that is still valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TokenRecord {
    /// Whether more than one node may join with the token.
    pub(super) reusable: bool,
}

/// Returns the names of all existing keys of the kinds in the module's table.
pub(super) fn keys(state: &ControlState) -> Vec<Vec<u8>> {
    pairs(state, ALL).into_iter().map(|pair| pair.key.to_vec()).collect()
}

pub(super) fn node_key(node: u64) -> Vec<u8> {
    // The number is padded with zeros, so that the order of the keys is the order of the numbers.
    format!("{NODES}{node:010}").into_bytes()
}

pub(super) fn token_key(digest: &str) -> Vec<u8> {
    format!("{TOKENS}{digest}").into_bytes()
}

pub(super) fn value(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_default()
}

/// A node's entry, and the revision at which it was last written. If there is no entry, the revision is 0.
pub(super) fn node(state: &ControlState, node: u64) -> (Option<NodeRecord>, u64) {
    let item = state.get(&node_key(node));
    (item.and_then(read), item.map_or(0, |item| item.modified))
}

/// The entries of all nodes, including removed ones.
pub(super) fn nodes(state: &ControlState) -> Vec<NodeRecord> {
    pairs(state, NODES.as_bytes()).iter().filter_map(|pair| read(&pair.item)).collect()
}

fn pairs(state: &ControlState, prefix: &[u8]) -> Vec<FoundKey> {
    let mut all = Vec::new();
    let (mut start, end) = (prefix.to_vec(), prefix_end(prefix));
    loop {
        let found = state.range(&start, &end, 0);
        let last = found.items.last().map(|last| [&last.key[..], &[0]].concat());
        all.extend(found.items);
        match last {
            Some(last) if found.more => start = last,
            _ => return all,
        }
    }
}

/// The number for the next node that joins, and the revision at which it was last written. If it was never written, the
/// revision is 0.
pub(super) fn next(state: &ControlState) -> (u64, u64) {
    let item = state.get(NEXT);
    let next = item.and_then(read::<u64>).unwrap_or(1);
    let last_node = nodes(state).last().map_or(1, |last| last.node);
    (next.max(last_node + 1), item.map_or(0, |item| item.modified))
}

/// The number of the node that begins the Raft groups of the tasks; `None` before a node was chosen.
pub(super) fn tasks_founder(state: &ControlState) -> Option<u64> {
    state.get(TASKS).and_then(read)
}

/// The token with this digest, and the revision at which it was written; `None` if there is no such token.
pub(super) fn token(state: &ControlState, digest: &str) -> Option<(TokenRecord, u64)> {
    let item = state.get(&token_key(digest))?;
    Some((read(item)?, item.modified))
}

/// Returns the condition that the key was last changed at this revision. With revision 0, the condition is that the key
/// does not exist.
pub(super) fn unchanged(key: &[u8], revision: u64) -> Compare<'_> {
    Compare { key, is: Comparison::Equal, target: ComparedProperty::Modified { revision } }
}

fn read<T: for<'de> Deserialize<'de>>(item: &KeyItem) -> Option<T> {
    serde_json::from_slice(&item.value).ok()
}
