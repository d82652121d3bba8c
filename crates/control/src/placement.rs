//! Decides which node owns each topic. All nodes agree on the owners, so a topic has at most one.
//!
//! Each member has a key that begins with [`NODES`] and is tied to the member's lease. Each topic has a key that begins
//! with [`TOPICS`] and whose value names the owner. Clients can watch and read these keys like other keys. Only the
//! commands of this module write them.
//!
//! Invariants:
//! - When a topic gets another owner, its epoch becomes higher than every epoch that a topic of this name had before,
//!   even if the topic was deleted in between. The epoch is the fencing token.
//! - A topic leaves its owner without the owner's consent only if the topic is volatile and the owner's lease has
//!   ended.
//! - No two topics share a subject.
//!
//! A topic stays with its dead owner until a node requests the topic's owner. Unused topics therefore cost nothing when
//! a node dies.

use crate::effects::ControlEffects;
use crate::error::{ControlDecodeError, ControlRefusal};
use crate::item::{Key, prefix_end};
use crate::layout::{choice, decode, encode, layout};
use crate::reply::ControlReply;
use crate::revision_builder::RevisionBuilder;
use crate::state::{CommandSource, ControlState};

/// Prefix of the key that stores a topic's owner; the topic's name follows.
pub const TOPICS: &[u8] = b"$topic/";
/// Prefix of the key that makes a node a member; the node's number in hexadecimal follows.
pub const NODES: &[u8] = b"$node/";
/// The key that stores the lowest epoch with which a new topic may begin.
const EPOCHS: &[u8] = b"$epoch";

/// The node that requests a new topic becomes the topic's owner, unless the node already owns many more topics than
/// another node. "Many more" means over a quarter more than the other node, and also over `UNEVEN_TOPICS` more.
const UNEVEN_TOPICS: u64 = 4;

choice! {
    /// Decides what happens to a topic while its owner is down.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TopicKind {
        /// Another node becomes the owner.
        Volatile = 1,
        /// The topic waits for its owner, which has the records.
        Durable = 2,
        /// Reserved for topics whose records are replicated; not used.
        Replicated = 3,
    }
}

layout! {
    /// The entry of a topic in the cluster's state: the topic's owner, epoch and configuration.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Placement<'a> {
        /// The owner.
        pub owner: u64,
        /// The topic's present epoch, to which records that are published now belong. It is also the owner's fencing
        /// token.
        pub epoch: u32,
        /// Decides what happens to the topic while its owner is down.
        pub kind: TopicKind,
        /// The pattern of the subjects that the topic owns.
        pub pattern: &'a [u8],
        /// The encoded configuration.
        pub config: &'a [u8],
        /// The previous owner if it was still running when the topic moved; otherwise 0.
        pub from: u64,
    }
}

layout! {
    /// A node's request to learn the owner of a topic. If necessary, the request creates the topic, or replaces an
    /// owner that is dead.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct OwnerRequest<'a> {
        /// The topic's name.
        pub topic: &'a [u8],
        /// For a new topic: its pattern.
        pub pattern: &'a [u8],
        /// For a new topic: what happens to it while its owner is down.
        pub kind: TopicKind,
        /// For a new topic: its encoded configuration. If this is empty and the topic does not exist, the topic is not
        /// created.
        pub config: &'a [u8],
        /// The lowest epoch with which the topic may be created or get a new owner.
        pub epoch: u32,
        /// The requesting node.
        pub node: u64,
        /// Whether the requesting node has the topic's records. If it has them and is a member, it becomes the owner of
        /// a topic that needs a new owner.
        pub holds: bool,
    }
}

impl<'a> Placement<'a> {
    /// Appends the encoded placement.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self, out);
    }

    /// Decodes a placement.
    pub fn decode(bytes: &'a [u8]) -> Result<Placement<'a>, ControlDecodeError> {
        decode(bytes)
    }

    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }
}

/// The key under which the cluster stores a topic's placement.
pub fn topic_key(topic: &[u8]) -> Vec<u8> {
    [TOPICS, topic].concat()
}

/// The key that makes a node a member, and stores its address.
pub fn node_key(node: u64) -> Vec<u8> {
    [NODES, format!("{node:016x}").as_bytes()].concat()
}

/// The number of the node to which `key` belongs; `None` if `key` is not a node's key.
pub fn node_of(key: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(key.strip_prefix(NODES)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

impl ControlState {
    /// Whether a node is a member at present.
    pub fn is_alive(&self, node: u64) -> bool {
        self.get(&node_key(node)).is_some()
    }

    /// The placement of a topic; `None` if there is no such topic.
    pub fn placement(&self, topic: &[u8]) -> Option<Placement<'_>> {
        Placement::decode(&self.get(&topic_key(topic))?.value).ok()
    }

    pub(crate) fn enlist(
        &mut self,
        node: u64,
        lease: u64,
        value: &[u8],
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        self.check_lease(lease)?;
        self.check_value(value)?;
        let key = node_key(node);
        self.check_room(CommandSource::System, self.growth(&key, value))?;
        let mut revision_builder = RevisionBuilder::begin(self, effects);
        revision_builder.put(&key, value, lease);
        Ok(revision_builder.changed())
    }

    pub(crate) fn place(
        &mut self,
        request: &OwnerRequest<'_>,
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        let Some(current) = self.placement(request.topic) else { return self.place_new(request, effects) };
        if current.kind != TopicKind::Volatile || self.is_alive(current.owner) {
            return Ok(ControlReply::Placed { owner: current.owner, epoch: current.epoch, created: false });
        }
        let epoch = request.epoch.max(current.epoch.saturating_add(1));
        let owner = self.choose_owner(request)?;
        let placement = Placement { owner, epoch, from: 0, ..current }.to_bytes();
        self.put_placement(request.topic, &placement, effects)?;
        Ok(ControlReply::Placed { owner, epoch, created: false })
    }

    fn place_new(
        &mut self,
        request: &OwnerRequest<'_>,
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        if request.config.is_empty() {
            return Err(ControlRefusal::NoTopic);
        }
        let key = topic_key(request.topic);
        self.check_key(&key)?;
        if self.overlaps(request.pattern) {
            return Err(ControlRefusal::PatternOverlaps);
        }
        let lowest = self.get(EPOCHS).and_then(|item| item.value[..].try_into().ok());
        let epoch = request.epoch.max(lowest.map_or(1, u32::from_le_bytes));
        // A durable topic is created at the requesting node, because its records are stored on that node's disk.
        let owner =
            if request.kind == TopicKind::Volatile { self.choose_owner(request)? } else { request.node };
        let OwnerRequest { kind, pattern, config, .. } = *request;
        let placement = Placement { owner, epoch, kind, pattern, config, from: 0 }.to_bytes();
        self.put_placement(request.topic, &placement, effects)?;
        Ok(ControlReply::Placed { owner, epoch, created: true })
    }

    pub(crate) fn move_topic(
        &mut self,
        topic: &[u8],
        node: u64,
        epoch: u32,
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        let current = self.placement(topic).ok_or(ControlRefusal::NoTopic)?;
        if current.owner == node && (epoch <= current.epoch || current.kind != TopicKind::Volatile) {
            return Ok(ControlReply::Placed { owner: node, epoch: current.epoch, created: false });
        }
        if current.owner == node {
            // The owner has restarted without the records of the previous epoch.
            let placement = Placement { epoch, from: 0, ..current }.to_bytes();
            self.put_placement(topic, &placement, effects)?;
            return Ok(ControlReply::Placed { owner: node, epoch, created: false });
        }
        if current.kind != TopicKind::Volatile {
            return Err(ControlRefusal::Immovable { owner: current.owner });
        }
        if !self.is_alive(node) {
            return Err(ControlRefusal::NoNode { node });
        }
        let epoch = epoch.max(current.epoch.saturating_add(1));
        let from = if self.is_alive(current.owner) { current.owner } else { 0 };
        let placement = Placement { owner: node, epoch, from, ..current }.to_bytes();
        self.put_placement(topic, &placement, effects)?;
        Ok(ControlReply::Placed { owner: node, epoch, created: false })
    }

    pub(crate) fn remove_topic(
        &mut self,
        topic: &[u8],
        effects: &mut ControlEffects,
    ) -> Result<ControlReply, ControlRefusal> {
        let current = self.placement(topic).ok_or(ControlRefusal::NoTopic)?;
        let (owner, next_epoch) = (current.owner, current.epoch.saturating_add(1));
        let lowest = self.get(EPOCHS).and_then(|item| item.value[..].try_into().ok());
        let lowest = next_epoch.max(lowest.map_or(1, u32::from_le_bytes));
        let mut revision_builder = RevisionBuilder::begin(self, effects);
        revision_builder.delete(&topic_key(topic));
        revision_builder.put(EPOCHS, &lowest.to_le_bytes(), 0);
        let reply = revision_builder.changed();
        self.topics.remove(owner, topic);
        Ok(reply)
    }

    fn put_placement(
        &mut self,
        topic: &[u8],
        placement: &[u8],
        effects: &mut ControlEffects,
    ) -> Result<(), ControlRefusal> {
        let key = topic_key(topic);
        self.check_value(placement)?;
        self.check_room(CommandSource::System, self.growth(&key, placement))?;
        let before = self.placement(topic).map(|current| current.owner);
        let mut revision_builder = RevisionBuilder::begin(self, effects);
        revision_builder.put(&key, placement, 0);
        revision_builder.end();
        if let Some(owner) = before {
            self.topics.remove(owner, topic);
        }
        if let Ok(placement) = Placement::decode(placement) {
            self.topics.add(topic, &placement);
        }
        Ok(())
    }

    /// Chooses the owner of a volatile topic. If the requesting node is a member, and if it has the topic's records or
    /// owns few topics, it becomes the owner. Otherwise, the member that owns the fewest topics becomes the owner.
    fn choose_owner(&self, request: &OwnerRequest<'_>) -> Result<u64, ControlRefusal> {
        let requester = self.is_alive(request.node).then_some(request.node);
        if let Some(node) = requester.filter(|_| request.holds) {
            return Ok(node);
        }
        let end = prefix_end(NODES);
        let nodes = self.between(NODES, &end).filter_map(|(key, _)| node_of(key));
        let least =
            nodes.map(|node| (self.topics.count_of(node), node)).min().ok_or(ControlRefusal::NoNodes)?;
        let has_few_topics =
            |node: &u64| self.topics.count_of(*node) <= least.0 + (least.0 / 4).max(UNEVEN_TOPICS);
        Ok(requester.filter(has_few_topics).unwrap_or(least.1))
    }

    fn overlaps(&self, pattern: &[u8]) -> bool {
        let placement_of = |topic: &Key| self.placement(topic);
        if self
            .topics
            .wildcard
            .iter()
            .filter_map(placement_of)
            .any(|current| patterns_overlap(current.pattern, pattern))
        {
            return true;
        }
        if !has_wildcard(pattern) {
            // Most topics own one subject, which is also their name: one lookup finds such a topic. Topics whose
            // subject differs from their name are scanned.
            return self
                .topics
                .differently_named
                .iter()
                .filter_map(placement_of)
                .any(|current| current.pattern == pattern)
                || self.placement(pattern).is_some_and(|current| current.pattern == pattern);
        }
        let end = prefix_end(TOPICS);
        let all = self.between(TOPICS, &end);
        let mut placements = all.filter_map(|(_, item)| Placement::decode(&item.value).ok());
        placements.any(|current| patterns_overlap(current.pattern, pattern))
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct TopicIndex {
    topic_counts: imbl::OrdMap<u64, u64>,
    /// Topics that own more than one subject.
    wildcard: imbl::OrdSet<Key>,
    /// Topics whose only subject differs from their name.
    differently_named: imbl::OrdSet<Key>,
}

impl TopicIndex {
    pub(crate) fn of_state(state: &ControlState) -> TopicIndex {
        let mut topics = TopicIndex::default();
        let end = prefix_end(TOPICS);
        for (key, item) in state.between(TOPICS, &end) {
            if let (Some(topic), Ok(placement)) = (key.strip_prefix(TOPICS), Placement::decode(&item.value)) {
                topics.add(topic, &placement);
            }
        }
        topics
    }

    fn count_of(&self, node: u64) -> u64 {
        self.topic_counts.get(&node).copied().unwrap_or(0)
    }

    fn add(&mut self, topic: &[u8], placement: &Placement<'_>) {
        *self.topic_counts.entry(placement.owner).or_default() += 1;
        if has_wildcard(placement.pattern) {
            self.wildcard.insert(Key::from_slice(topic));
        } else if placement.pattern != topic {
            self.differently_named.insert(Key::from_slice(topic));
        }
    }

    fn remove(&mut self, owner: u64, topic: &[u8]) {
        match self.count_of(owner) {
            0 | 1 => drop(self.topic_counts.remove(&owner)),
            more => drop(self.topic_counts.insert(owner, more - 1)),
        }
        self.wildcard.remove(topic);
        self.differently_named.remove(topic);
    }
}

fn has_wildcard(pattern: &[u8]) -> bool {
    pattern.split(|&byte| byte == b'.').any(|token| token == b"*" || token == b">")
}

/// Whether some subject matches both patterns.
fn patterns_overlap(left: &[u8], right: &[u8]) -> bool {
    let dot = |byte: &u8| *byte == b'.';
    let (mut left, mut right) = (left.split(dot), right.split(dot));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (Some(b">"), Some(_)) | (Some(_), Some(b">")) => return true,
            (Some(a), Some(b)) if a == b || a == b"*" || b == b"*" => {}
            _ => return false,
        }
    }
}
