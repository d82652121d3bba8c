//! What a node is started with.

use std::time::Duration;

use dunlin_topic::{Retention, TopicConfig};

use crate::control::ControlLimits;
use crate::tasks::TasksLimits;

/// What a node is started with. The default suits a program that embeds one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// A name that clients and operators see.
    pub name: String,
    /// How topics behave that are created without saying how.
    pub topic: TopicConfig,
    /// Whether publishing or subscribing to a subject that no topic owns creates one.
    pub auto_create: bool,
    /// It is one node of several, whose program says how it reaches the others ([`Node::set_control`](crate::Node::set_control));
    /// without it, it is a cluster of one.
    pub is_of_cluster: bool,
    /// What it holds at most.
    pub limits: Limits,
}

/// Every bound a node keeps, in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Memory of histories, payloads by reference and sessions, bytes. When it is spent, histories of
    /// topics that grow are shortened, and what cannot be shortened is refused.
    pub memory_bytes_max: u64,
    /// Memory of given-up history that is kept for reuse, bytes.
    pub idle_bytes_max: usize,
    /// Topics, inboxes included; one more is refused.
    pub topics_max: usize,
    /// Subscriptions that wait for topics to come; one more is refused.
    pub watchers_max: usize,
    /// Topics on one page of a list; a longer page is cut.
    pub page_topics_max: usize,
    /// Groups of all topics; one more is refused.
    pub groups_max: usize,
    /// How long what a deleted topic held stays readable for those who subscribed before.
    pub deleted_age_max: Duration,
    /// How long a group stands that has no members.
    pub group_idle_max: Duration,
    /// What each partition of a group holds at most.
    pub topic: dunlin_topic::Limits,
    /// History in memory that a topic with the node's own retention keeps for readers that cannot be told of a loss, bytes.
    pub pending_bytes_max: u64,
    /// Bytes that a log of a durable topic may hold which are not stored yet; publishers wait then. A topic with larger
    /// records gets more.
    pub unstored_bytes_max: u64,
    /// Memory of history that was read from disk and is kept for other readers, bytes.
    pub loaded_bytes_max: u64,
    /// Those of what the cluster agrees on.
    pub control: ControlLimits,
    /// Those of its tasks.
    pub tasks: TasksLimits,
    /// How much history an inbox keeps: replies that were not read, bytes.
    pub inbox_bytes_max: u64,
    /// How long an inbox keeps a reply that was not read.
    pub inbox_age_max: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: "dunlin".to_owned(),
            topic: TopicConfig::default(),
            auto_create: true,
            is_of_cluster: false,
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::with_memory(1 << 30)
    }
}

/// Keys take one in so many parts of the memory at most, unless something else is said; tasks as well.
const SHARE_OF_MEMORY: u64 = 4;

impl Limits {
    /// Those of a node with so much memory.
    pub fn with_memory(memory_bytes_max: u64) -> Limits {
        let state_bytes_max = memory_bytes_max / SHARE_OF_MEMORY;
        Limits {
            memory_bytes_max,
            idle_bytes_max: 64 << 20,
            topics_max: 1_000_000,
            watchers_max: 1_000_000,
            page_topics_max: 1_000,
            groups_max: 10_000,
            deleted_age_max: Duration::from_secs(60),
            group_idle_max: Duration::from_secs(3_600),
            // A client over a door may take long to confirm what it was sent; records may be small.
            topic: dunlin_topic::Limits { share_handed_max: 65_536, ..dunlin_topic::Limits::default() },
            // As much as nats-server holds for a client.
            pending_bytes_max: 64 << 20,
            unstored_bytes_max: 16 << 20,
            loaded_bytes_max: 32 << 20,
            control: ControlLimits { state_bytes_max, ..ControlLimits::default() },
            tasks: TasksLimits { state_bytes_max, ..TasksLimits::default() },
            inbox_bytes_max: 1 << 20,
            inbox_age_max: Duration::from_secs(60),
        }
    }
}

impl Config {
    /// The limits of a topic. Where somebody said how much history it keeps, no more is kept for any reader; what a durable
    /// one gives up in memory is on disk.
    pub(crate) fn topic_limits(&self, topic: &TopicConfig) -> dunlin_topic::Limits {
        let keeps = topic.retention == self.topic.retention && topic.durable.is_none();
        let pending_bytes_max = if keeps { self.limits.pending_bytes_max } else { 0 };
        dunlin_topic::Limits { pending_bytes_max, ..self.limits.topic }
    }
}

impl Limits {
    /// How an inbox behaves that owns the pattern.
    pub(crate) fn inbox(&self, pattern: String, bytes: u64) -> TopicConfig {
        let retention = Retention { bytes, records: None, age: Some(self.inbox_age_max) };
        TopicConfig { pattern: Some(pattern), retention, ..TopicConfig::default() }
    }
}
