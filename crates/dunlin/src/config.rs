//! The configuration of a node.

use std::time::Duration;

use dunlin_topic::{Retention, TopicConfig};

use crate::control::ControlLimits;
use crate::tasks::TasksLimits;

/// The configuration of a node, with defaults for a node that is embedded in a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The node's name, which clients and operators see.
    pub name: String,
    /// The configuration of topics that are created without one.
    pub topic: TopicConfig,
    /// Whether the node creates a topic when a client publishes or subscribes to a subject that no topic owns.
    pub auto_create: bool,
    /// Whether the node belongs to a cluster of several nodes. If so, the embedding program must connect the node to
    /// the other nodes with [`Node::set_control`](crate::Node::set_control). If not, the node is a cluster of one.
    pub is_cluster_member: bool,
    /// Limits of the node.
    pub limits: NodeLimits,
}

/// Limits of a node: its memory, and the number of its topics, groups and subscriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLimits {
    /// Maximum memory of topics and sessions, bytes. At the limit, a topic that receives records drops its oldest ones.
    /// Other requests that need memory are refused.
    pub memory_bytes_max: u64,
    /// Maximum memory of the topics and connections of a tenant that has no limit of its own, bytes. Does not apply if
    /// all users belong to one tenant.
    pub tenant_bytes_max: u64,
    /// Maximum size of the memory that topics have freed and that the node keeps for reuse, bytes.
    pub idle_bytes_max: usize,
    /// Maximum number of topics, inboxes included. The node refuses to create more. The node's own topics, such as
    /// `$kv`, are never refused.
    pub topics_max: usize,
    /// Number of file descriptors that durable topics leave to connections, keys, tasks and the node's other files. If
    /// the process may open fewer than twice this number of files, durable topics may use half of the process's files.
    /// A durable topic is refused if it needs more files than are left for durable topics.
    pub reserved_files: u64,
    /// Maximum number of subscriptions that wait for new topics. The node refuses more.
    pub watchers_max: usize,
    /// Maximum number of topics on one page of a list.
    pub page_topics_max: usize,
    /// Maximum number of groups, of all topics together. The node refuses more.
    pub groups_max: usize,
    /// How long a deleted topic stays readable for its subscribers.
    pub deleted_age_max: Duration,
    /// How long a group without members exists.
    pub group_idle_max: Duration,
    /// Limits of each partition of a topic, and of the groups that read the partition.
    pub topic: dunlin_topic::LogLimits,
    /// Maximum size of the records that a topic keeps beyond its retention for a slow subscriber, in bytes. Only
    /// volatile topics with the default retention keep such records. They keep them for mirrors, and for subscribers
    /// whose protocol cannot report gaps.
    pub pending_bytes_max: u64,
    /// If a durable log has this many bytes that are not on disk yet, its publishers wait. A topic that accepts records
    /// larger than this has a higher limit.
    pub unstored_bytes_max: u64,
    /// Maximum memory for records that were read from disk and are kept for further subscribers, bytes.
    pub loaded_bytes_max: u64,
    /// Limits of keys, leases and locks.
    pub control: ControlLimits,
    /// Limits of tasks.
    pub tasks: TasksLimits,
    /// Maximum size of the unread replies that an inbox keeps, bytes.
    pub inbox_bytes_max: u64,
    /// How long an inbox keeps an unread reply.
    pub inbox_age_max: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: "dunlin".to_owned(),
            topic: TopicConfig::default(),
            auto_create: true,
            is_cluster_member: false,
            limits: NodeLimits::default(),
        }
    }
}

impl Default for NodeLimits {
    fn default() -> NodeLimits {
        NodeLimits::with_memory(1 << 30)
    }
}

/// The default limit of the keys' memory is the node's memory divided by this number. The tasks have the same default
/// limit.
const SHARE_OF_MEMORY: u64 = 4;

impl NodeLimits {
    /// The default limits of a node with `memory_bytes_max` bytes of memory.
    pub fn with_memory(memory_bytes_max: u64) -> NodeLimits {
        let state_bytes_max = memory_bytes_max / SHARE_OF_MEMORY;
        NodeLimits {
            memory_bytes_max,
            tenant_bytes_max: memory_bytes_max / 2,
            idle_bytes_max: 64 << 20,
            topics_max: 1_000_000,
            reserved_files: 256,
            watchers_max: 1_000_000,
            page_topics_max: 1_000,
            groups_max: 10_000,
            deleted_age_max: Duration::from_secs(60),
            group_idle_max: Duration::from_secs(3_600),
            // The limit on records without acknowledgement is high, because a remote client may acknowledge late and
            // records may be small.
            topic: dunlin_topic::LogLimits {
                share_in_flight_max: 65_536,
                ..dunlin_topic::LogLimits::default()
            },
            // nats-server has the same limit for the buffer of a client.
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
    /// The limits of a topic. Only a volatile topic with the default retention keeps records for slow subscribers
    /// beyond its retention. A durable topic need not: it keeps older records on disk.
    pub(crate) fn topic_limits(&self, topic: &TopicConfig) -> dunlin_topic::LogLimits {
        let has_default_retention = topic.retention == self.topic.retention && topic.durable.is_none();
        let pending_bytes_max = if has_default_retention { self.limits.pending_bytes_max } else { 0 };
        dunlin_topic::LogLimits { pending_bytes_max, ..self.limits.topic }
    }
}

impl NodeLimits {
    /// The configuration of an inbox with the pattern `pattern`, which keeps `bytes` bytes of unread replies.
    pub(crate) fn inbox(&self, pattern: String, bytes: u64) -> TopicConfig {
        let retention = Retention { bytes, records: None, age: Some(self.inbox_age_max) };
        TopicConfig { pattern: Some(pattern), retention, ..TopicConfig::default() }
    }
}
