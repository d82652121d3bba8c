//! Defines the messages for creating, listing, describing and deleting topics. The client chooses the number `request`
//! of each request, and the reply repeats this number.

use crate::code::Refusal;
use crate::group::GroupKind;
use crate::layout::{choice, layout};
use crate::list::MessageList;
use crate::subscribe::Position;

choice! {
    /// The action of a reliable topic if a registered subscriber frees no room in time: refuse records, or evict the
    /// subscriber.
    pub enum WhenFull {
        /// The topic refuses the record that is being published.
        Refuse = 0,
        /// The topic no longer waits for the subscriber, which then receives a gap.
        Evict = 1,
    }
}

layout! {
    /// The configuration of a topic in a message. A limit of 0 means the node's default.
    pub struct TopicConfig<'a> {
        /// The topic's name.
        pub name: &'a str,
        /// The topic's pattern; if this is empty, the pattern is the topic's name.
        pub pattern: &'a str,
        /// Number of partitions. The partition of a record follows from the hash of its key.
        pub partitions: u16,
        /// Maximum size of a partition's retained records, bytes.
        pub retain_bytes: u64,
        /// Maximum number of a partition's retained records.
        pub retain_records: u64,
        /// Maximum age of a partition's retained records, ms.
        pub retain_ms: u64,
        /// Maximum size of a record, with metadata and padding, bytes.
        pub record_bytes_max: u32,
        /// Maximum number of registered subscribers for which publishers wait; 0 if the topic is not reliable.
        pub reliable_subscribers_max: u32,
        /// Maximum time for which a publisher waits for registered subscribers, ms.
        pub wait_ms_max: u32,
        /// The action of the topic if registered subscribers have freed no room within `wait_ms_max`.
        pub when_full: WhenFull,
    }
}

layout! {
    /// Message CREATE_TOPIC: creates a topic. The reply is DONE.
    pub struct CreateTopic<'a> {
        /// The request's number. The reply repeats it.
        pub request: u32,
        /// Whether the request succeeds if a topic with this name and configuration exists already.
        pub or_same: bool,
        /// The topic's configuration.
        pub config: TopicConfig<'a>,
    }
}

layout! {
    /// A setting of a topic, which has a name and a value. In a reply, the pair of name and value may also be a status
    /// of the topic.
    ///
    /// The setting `reducer` is the kind of the topic's state, and `reducer.<option>` is an option for this kind.
    /// SETTINGS also contains `reducer/<partition>`: a text with the position, the number of entries, the size and the
    /// checksum of that partition's state.
    pub struct Setting<'a> {
        /// The setting's name.
        pub name: &'a str,
        /// The setting's value.
        pub value: &'a str,
    }
}

layout! {
    /// Message CREATE_TOPIC_WITH_SETTINGS: creates a topic with named settings. The request is refused if a setting is unknown.
    pub struct CreateTopicWithSettings<'a> {
        /// The request's number. The reply repeats it.
        pub request: u32,
        /// Whether the request succeeds if a topic with this name, configuration and settings exists already.
        pub or_same: bool,
        /// The topic's configuration.
        pub config: TopicConfig<'a>,
        /// The named settings.
        pub settings: MessageList<'a, Setting<'a>>,
    }
}

layout! {
    /// Message SETTINGS: the reply to DESCRIBE_SETTINGS, with the settings of the topic.
    pub struct Settings<'a> {
        /// The number of the request to which this is the reply.
        pub request: u32,
        /// The topic's settings.
        pub settings: MessageList<'a, Setting<'a>>,
    }
}

layout! {
    /// Message DELETE_TOPIC or DESCRIBE_TOPIC: a request that names one topic. The reply is DONE or TOPIC.
    pub struct NamedTopic<'a> {
        /// The request's number. The reply repeats it.
        pub request: u32,
        /// The topic's name.
        pub topic: &'a str,
    }
}

layout! {
    /// Message LIST_TOPICS: requests a list of topics in the order of their names. The reply is TOPICS.
    pub struct ListTopics<'a> {
        /// The request's number. The reply repeats it.
        pub request: u32,
        /// Maximum number of topics in the reply. The node may return fewer topics.
        pub topics_max: u32,
        /// Pattern that the topics' names must match; empty for all topics.
        pub pattern: &'a str,
        /// The last name on the previous page: only topics with later names are listed. Empty for the first page.
        pub after: &'a str,
    }
}

layout! {
    /// One topic in a TOPICS message, with its counters.
    pub struct ListedTopic<'a> {
        /// The topic's name.
        pub name: &'a str,
        /// The topic's pattern.
        pub pattern: &'a str,
        /// Number of partitions; 0 for a topic on disk that could not be opened. DESCRIBE_TOPIC then returns the
        /// reason.
        pub partitions: u16,
        /// Whether publishers wait for registered subscribers.
        pub reliable: bool,
        /// Number of retained records.
        pub records: u64,
        /// Number of retained bytes.
        pub bytes: u64,
        /// Number of records that were appended in the present epochs of the topic's logs.
        pub appended: u64,
        /// Number of subscribers.
        pub subscribers: u32,
    }
}

/// Stands for a number that is unknown because a node did not respond.
pub const UNKNOWN: u64 = u64::MAX;
/// Like [`UNKNOWN`], for numbers of 32 bits.
pub const UNKNOWN_COUNT: u32 = u32::MAX;

layout! {
    /// Message TOPICS: the reply to LIST_TOPICS, with a page of the list.
    pub struct Topics<'a> {
        /// The number of the request to which this is the reply.
        pub request: u32,
        /// Whether the list continues after the last topic in this reply.
        pub more: bool,
        /// The topics on this page.
        pub topics: MessageList<'a, ListedTopic<'a>>,
    }
}

layout! {
    /// The status of one partition in a TOPIC message.
    pub struct LogState {
        /// The partition's number.
        pub partition: u16,
        /// The position of the oldest retained record; if no record is retained, the position that the next record
        /// gets.
        pub first: Position,
        /// The sequence number of the last record that was appended. If no record is retained, `first` is the position
        /// after this last record.
        pub last_seq: u64,
        /// Number of retained bytes.
        pub bytes: u64,
        /// Append time of the last record, ns since the Unix epoch; 0 if there is none.
        pub last_append_ns: u64,
    }
}

layout! {
    /// The status of one subscriber in a TOPIC message.
    pub struct SubscriberState<'a> {
        /// The subscription's name.
        pub name: &'a str,
        /// The partition that the subscriber reads.
        pub partition: u16,
        /// The position of the last record that the subscriber received.
        pub position: Position,
        /// Number of records that the subscriber has still to read.
        pub lag: u64,
        /// Number of records that the subscriber has missed because of gaps.
        pub missed: u64,
        /// Whether publishers wait for this subscriber.
        pub registered: bool,
    }
}

layout! {
    /// The status of one group in a TOPIC message.
    pub struct GroupState<'a> {
        /// The group's name.
        pub name: &'a str,
        /// The group's kind.
        pub kind: GroupKind,
        /// Number of members of the group.
        pub members: u32,
        /// Number of records that wait to be delivered to a member.
        pub waiting: u64,
        /// Number of records that members have claimed.
        pub claimed: u64,
    }
}

layout! {
    /// Message TOPIC: the reply to DESCRIBE_TOPIC, with the topic's configuration, partitions, subscribers and groups.
    pub struct TopicState<'a> {
        /// The number of the request to which this is the reply.
        pub request: u32,
        /// The configuration, in which every limit has its value instead of 0.
        pub config: TopicConfig<'a>,
        /// Number of open publishers.
        pub publishers: u32,
        /// Number of all subscribers; the list `subscribers` may be shorter.
        pub subscribers_total: u32,
        /// The topic's partitions.
        pub logs: MessageList<'a, LogState>,
        /// The slowest subscribers, from the slowest on.
        pub subscribers: MessageList<'a, SubscriberState<'a>>,
        /// The topic's groups.
        pub groups: MessageList<'a, GroupState<'a>>,
    }
}

layout! {
    /// Message REQUEST_REFUSED: reports that a request was refused.
    pub struct RequestRefused<'a> {
        /// The number of the refused request.
        pub request: u32,
        /// The reason why the request was refused.
        pub refusal: Refusal<'a>,
    }
}
