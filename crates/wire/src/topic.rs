//! Messages for creating and describing topics. In each request, `request` is a number that the client chose, and the
//! reply repeats this number.

use crate::code::Refusal;
use crate::group::GroupKind;
use crate::layout::{choice, layout};
use crate::list::MessageList;
use crate::subscribe::Position;

choice! {
    /// The policy of a reliable topic for a subscriber that frees no room in time: refuse records, or evict the
    /// subscriber.
    pub enum WhenFull {
        /// The topic refuses the published record.
        Refuse = 0,
        /// The topic evicts the subscriber, which then receives a gap.
        Evict = 1,
    }
}

layout! {
    /// The configuration of a topic, as a message contains it. A limit of 0 means the node's default.
    pub struct TopicConfig<'a> {
        /// The topic's name.
        pub name: &'a str,
        /// The topic's pattern; if empty, the name is the pattern.
        pub pattern: &'a str,
        /// Number of partitions. The hash of a record's key selects the record's partition.
        pub partitions: u16,
        /// Maximum size of a partition's retained records, bytes.
        pub retain_bytes: u64,
        /// Maximum number of a partition's retained records.
        pub retain_records: u64,
        /// Maximum age of a partition's retained records, ms.
        pub retain_ms: u64,
        /// Largest record, with metadata and padding, bytes.
        pub record_bytes_max: u32,
        /// Maximum number of registered subscribers that publishers wait for; 0 for a topic that is not reliable.
        pub reliable_subscribers_max: u32,
        /// Maximum time for which a publisher waits for registered subscribers, ms.
        pub wait_ms_max: u32,
        /// The action of the topic if registered subscribers have not freed room within `wait_ms_max`.
        pub when_full: WhenFull,
    }
}

layout! {
    /// Message CREATE_TOPIC: creates a topic. The reply is DONE.
    pub struct CreateTopic<'a> {
        /// The request's number.
        pub request: u32,
        /// Whether to accept an existing topic with this name and configuration.
        pub or_same: bool,
        /// The topic's configuration.
        pub config: TopicConfig<'a>,
    }
}

layout! {
    /// A setting of a topic, such as its reducer: a name, and its value or current status.
    ///
    /// The setting `reducer` is the kind of state, and `reducer.<option>` an option of this kind. SETTINGS also has
    /// `reducer/<partition>`, which states a partition's position, entries, bytes and checksum as text.
    pub struct Setting<'a> {
        /// The setting's name.
        pub name: &'a str,
        /// The setting's value.
        pub value: &'a str,
    }
}

layout! {
    /// Message CREATE_TOPIC_WITH: creates a topic with named settings. An unknown setting is refused.
    pub struct CreateTopicWith<'a> {
        /// The request's number.
        pub request: u32,
        /// Whether to accept an existing topic with this name, configuration and settings.
        pub or_same: bool,
        /// The topic's configuration.
        pub config: TopicConfig<'a>,
        /// The named settings.
        pub settings: MessageList<'a, Setting<'a>>,
    }
}

layout! {
    /// Message SETTINGS: the settings of a topic, in reply to DESCRIBE_SETTINGS.
    pub struct Settings<'a> {
        /// The request's number.
        pub request: u32,
        /// The topic's settings.
        pub settings: MessageList<'a, Setting<'a>>,
    }
}

layout! {
    /// Message DELETE_TOPIC or DESCRIBE_TOPIC: names a topic. The reply is DONE or TOPIC.
    pub struct NamedTopic<'a> {
        /// The request's number.
        pub request: u32,
        /// The topic's name.
        pub topic: &'a str,
    }
}

layout! {
    /// Message LIST_TOPICS: lists topics in the order of their names. The reply is TOPICS.
    pub struct ListTopics<'a> {
        /// The request's number.
        pub request: u32,
        /// Maximum number of topics in the reply. The node may return fewer.
        pub topics_max: u32,
        /// Pattern that the names must match; empty for all topics.
        pub pattern: &'a str,
        /// The last name of the previous page; only later names are listed. Empty for the first page.
        pub after: &'a str,
    }
}

layout! {
    /// One topic in the list of message TOPICS, with its counters.
    pub struct TopicLine<'a> {
        /// The topic's name.
        pub name: &'a str,
        /// The topic's pattern.
        pub pattern: &'a str,
        /// Number of partitions; 0 for a topic on disk that could not be opened. DESCRIBE_TOPIC returns the reason.
        pub partitions: u16,
        /// Whether publishers wait for registered subscribers.
        pub reliable: bool,
        /// Number of retained records.
        pub records: u64,
        /// Number of retained bytes.
        pub bytes: u64,
        /// Number of records that were appended in the logs' current epochs.
        pub appended: u64,
        /// Number of subscribers.
        pub subscribers: u32,
    }
}

/// The value of a count that is unknown because a node did not respond.
pub const UNKNOWN: u64 = u64::MAX;
/// Like [`UNKNOWN`], but for counts of 32 bits.
pub const UNKNOWN_COUNT: u32 = u32::MAX;

layout! {
    /// Message TOPICS: a page of a list of topics.
    pub struct Topics<'a> {
        /// The request's number.
        pub request: u32,
        /// Whether there are more topics after the last one of this reply.
        pub more: bool,
        /// The topics of this page.
        pub topics: MessageList<'a, TopicLine<'a>>,
    }
}

layout! {
    /// One partition of the topic in message TOPIC, with its records and bytes.
    pub struct LogState {
        /// The partition's number.
        pub partition: u16,
        /// The position of the oldest retained record, or of the next record if none is retained.
        pub first: Position,
        /// The sequence number of the last appended record. If no record is retained, `first` has the next number.
        pub last_seq: u64,
        /// Number of retained bytes.
        pub bytes: u64,
        /// Append time of the last record, ns since the Unix epoch; 0 if there is none.
        pub last_append_ns: u64,
    }
}

layout! {
    /// One subscriber of the topic in message TOPIC, with its position and lag.
    pub struct SubscriberState<'a> {
        /// The subscription's name.
        pub name: &'a str,
        /// The subscriber's partition.
        pub partition: u16,
        /// The last record that the subscriber received.
        pub position: Position,
        /// Number of records that the subscriber has still to read.
        pub lag: u64,
        /// Number of records that the subscriber missed.
        pub missed: u64,
        /// Whether publishers wait for the subscriber.
        pub registered: bool,
    }
}

layout! {
    /// One group of the topic in message TOPIC, with the numbers of its members and records.
    pub struct GroupState<'a> {
        /// The group's name.
        pub name: &'a str,
        /// The group's kind.
        pub kind: GroupKind,
        /// Number of members of the group.
        pub members: u32,
        /// Number of records that wait for a member.
        pub waiting: u64,
        /// Number of records that members have claimed.
        pub claimed: u64,
    }
}

layout! {
    /// Message TOPIC: the configuration, partitions, subscribers and groups of a topic.
    pub struct TopicState<'a> {
        /// The request's number.
        pub request: u32,
        /// The configuration, in which defaults are replaced by their values.
        pub config: TopicConfig<'a>,
        /// Number of open publishers.
        pub publishers: u32,
        /// Number of all subscribers. The list `subscribers` may contain only some of them.
        pub subscribers_total: u32,
        /// The topic's partitions.
        pub logs: MessageList<'a, LogState>,
        /// The slowest subscribers, slowest first.
        pub subscribers: MessageList<'a, SubscriberState<'a>>,
        /// The topic's groups.
        pub groups: MessageList<'a, GroupState<'a>>,
    }
}

layout! {
    /// Message REQUEST_REFUSED: a request was refused.
    pub struct RequestRefused<'a> {
        /// The request's number.
        pub request: u32,
        /// The reason for the refusal.
        pub refusal: Refusal<'a>,
    }
}
