//! Topics as operators and programs make and see them. `request` is the client's number for the
//! question; the answer carries it.

use crate::code::Refusal;
use crate::group::GroupKind;
use crate::layout::{choice, layout};
use crate::list::List;
use crate::subscribe::Position;

choice! {
    /// What a reliable topic does when its slowest reader made no room in time.
    pub enum WhenFull {
        /// Refuses the publish.
        Refuse = 0,
        /// Evicts the reader, which gets its gap.
        Evict = 1,
    }
}

layout! {
    /// How a topic behaves. A limit of 0 means the node's default.
    pub struct TopicConfig<'a> {
        /// Its name.
        pub name: &'a str,
        /// The subjects it owns; empty for just its name.
        pub pattern: &'a str,
        /// How many logs it is made of; a key's hash picks one.
        pub partitions: u16,
        /// History kept in each partition, bytes.
        pub retain_bytes: u64,
        /// History kept in each partition, records.
        pub retain_records: u64,
        /// History kept in each partition, ms.
        pub retain_ms: u64,
        /// The largest record, with meta and padding, bytes.
        pub record_bytes_max: u32,
        /// How many registered readers the publisher waits for; 0 for a topic that is not reliable.
        pub reliable_readers_max: u32,
        /// How long a publisher waits for them, ms.
        pub wait_ms_max: u32,
        /// What happens then.
        pub when_full: WhenFull,
    }
}

layout! {
    /// Creates a topic. Answered by DONE.
    pub struct CreateTopic<'a> {
        /// The request.
        pub request: u32,
        /// A topic of this name and the same configuration is as good as a new one.
        pub or_same: bool,
        /// How it is to behave.
        pub config: TopicConfig<'a>,
    }
}

layout! {
    /// A setting of a topic beside those that every topic has, or what has become of it.
    ///
    /// `fold` is the kind of state, `fold.<option>` what the kind is told. In SETTINGS also, for each partition,
    /// `fold/<partition>` with its position, entries, bytes and checksum in words.
    pub struct Setting<'a> {
        /// Its name.
        pub name: &'a str,
        /// Its value.
        pub value: &'a str,
    }
}

layout! {
    /// CREATE_TOPIC with more settings. One that the node does not know is refused.
    pub struct CreateTopicWith<'a> {
        /// The request.
        pub request: u32,
        /// A topic of this name and the same configuration is as good as a new one.
        pub or_same: bool,
        /// How it is to behave.
        pub config: TopicConfig<'a>,
        /// And beside.
        pub settings: List<'a, Setting<'a>>,
    }
}

layout! {
    /// The settings of a topic: the answer to DESCRIBE_SETTINGS.
    pub struct Settings<'a> {
        /// The request.
        pub request: u32,
        /// Those that it has.
        pub settings: List<'a, Setting<'a>>,
    }
}

layout! {
    /// DELETE_TOPIC, answered by DONE, and DESCRIBE_TOPIC, answered by TOPIC.
    pub struct NamedTopic<'a> {
        /// The request.
        pub request: u32,
        /// The topic's name.
        pub topic: &'a str,
    }
}

layout! {
    /// Asks for topics in the order of their names. Answered by TOPICS.
    pub struct ListTopics<'a> {
        /// The request.
        pub request: u32,
        /// At most so many; the node may give fewer.
        pub topics_max: u32,
        /// Names that this pattern matches; empty for all.
        pub pattern: &'a str,
        /// Names after this one: the last of the page before.
        pub after: &'a str,
    }
}

layout! {
    /// One topic in a list.
    pub struct TopicLine<'a> {
        /// Its name.
        pub name: &'a str,
        /// The subjects it owns.
        pub pattern: &'a str,
        /// Its partitions; 0 for one that is on disk and could not be opened. DESCRIBE_TOPIC is refused with the reason.
        pub partitions: u16,
        /// Whether publishers wait for registered readers.
        pub reliable: bool,
        /// Records held.
        pub records: u64,
        /// Bytes held.
        pub bytes: u64,
        /// Records ever appended, in the epochs in force.
        pub appended: u64,
        /// Readers at present.
        pub readers: u32,
    }
}

/// Stands for a count that is not known: a node that would have to say does not answer.
pub const UNKNOWN: u64 = u64::MAX;
/// [`UNKNOWN`] of a count of 32 bits.
pub const UNKNOWN_COUNT: u32 = u32::MAX;

layout! {
    /// A page of the list.
    pub struct Topics<'a> {
        /// The request.
        pub request: u32,
        /// There are more after the last of these.
        pub more: bool,
        /// The topics.
        pub topics: List<'a, TopicLine<'a>>,
    }
}

layout! {
    /// One partition.
    pub struct LogState {
        /// Which.
        pub partition: u16,
        /// The oldest record held, or the next one when none is.
        pub first: Position,
        /// The last sequence appended; one less than `first` when nothing is held.
        pub last_seq: u64,
        /// Bytes held.
        pub bytes: u64,
        /// When the last record was appended, ns since the Unix epoch; 0 for never.
        pub last_append_ns: u64,
    }
}

layout! {
    /// One reader.
    pub struct ReaderState<'a> {
        /// The subscription's name.
        pub name: &'a str,
        /// The partition it reads.
        pub partition: u16,
        /// The last record it was given.
        pub position: Position,
        /// Records it has yet to read.
        pub behind: u64,
        /// Records that were lost to it.
        pub lost: u64,
        /// Whether publishers wait for it.
        pub registered: bool,
    }
}

layout! {
    /// One group.
    pub struct GroupState<'a> {
        /// Its name.
        pub name: &'a str,
        /// Its kind.
        pub kind: GroupKind,
        /// Its members.
        pub members: u32,
        /// Records that wait for a member.
        pub waiting: u64,
        /// Records that members have claimed.
        pub claimed: u64,
    }
}

layout! {
    /// All about one topic.
    pub struct TopicState<'a> {
        /// The request.
        pub request: u32,
        /// Its configuration, defaults filled in.
        pub config: TopicConfig<'a>,
        /// Publishers that have it open.
        pub publishers: u32,
        /// Readers in all; `readers` may leave some out.
        pub readers_total: u32,
        /// Its partitions.
        pub logs: List<'a, LogState>,
        /// The slowest of its readers, slowest first.
        pub readers: List<'a, ReaderState<'a>>,
        /// Its groups.
        pub groups: List<'a, GroupState<'a>>,
    }
}

layout! {
    /// A request was refused.
    pub struct RequestRefused<'a> {
        /// The request.
        pub request: u32,
        /// Why.
        pub refusal: Refusal<'a>,
    }
}
