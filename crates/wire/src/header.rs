//! The header of a message, and the table of message kinds.
//!
//! ```text
//!  0          4      5       6          8
//!  +----------+------+-------+----------+-------------
//!  | len u32  | kind | flags | zero u16 | body …
//!  +----------+------+-------+----------+-------------
//! ```
//! `len` is the length of the whole message, a multiple of 8.

use crate::error::WireError;

/// Length of the header, bytes.
pub const HEADER_BYTES: usize = 8;
/// Alignment of messages, bytes.
pub const MESSAGE_ALIGN: usize = 8;

/// A row of the table of message kinds: the kind, its name, and its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindRow {
    /// The kind.
    pub kind: MessageKind,
    /// The kind's name.
    pub name: &'static str,
    /// Whether the client sends messages of this kind.
    pub from_client: bool,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal;)*) => {
        /// The kind of a message. A client sends kinds with numbers below 64, and a node sends the other kinds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum MessageKind {
            $($(#[$doc])* $kind = $number,)*
        }

        /// All kinds, in the order of their numbers.
        pub const KINDS: &[KindRow] =
            &[$(KindRow { kind: MessageKind::$kind, name: $name, from_client: $number < 64 },)*];

        impl MessageKind {
            /// The kind with this number.
            #[inline]
            pub fn from_number(number: u8) -> Option<MessageKind> {
                match number {
                    $($number => Some(MessageKind::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// The client identifies itself.
    Hello = 1, "HELLO";
    /// Publishes records.
    Publish = 2, "PUBLISH";
    /// Opens a publisher of a topic, with a number.
    OpenPublisher = 3, "OPEN_PUBLISHER";
    /// Closes a publisher.
    ClosePublisher = 4, "CLOSE_PUBLISHER";
    /// Positions from which a subscription resumes.
    Resume = 5, "RESUME";
    /// Begins a subscription.
    Subscribe = 6, "SUBSCRIBE";
    /// Ends a subscription, or leaves a group.
    Unsubscribe = 7, "UNSUBSCRIBE";
    /// Grants more bytes, and reports consumed records.
    Credit = 8, "CREDIT";
    /// Requests a PONG.
    Ping = 9, "PING";
    /// Creates a topic.
    CreateTopic = 10, "CREATE_TOPIC";
    /// Deletes a topic.
    DeleteTopic = 11, "DELETE_TOPIC";
    /// Lists topics.
    ListTopics = 12, "LIST_TOPICS";
    /// Describes a topic.
    DescribeTopic = 13, "DESCRIBE_TOPIC";
    /// Joins a group.
    JoinGroup = 14, "JOIN_GROUP";
    /// Requests records of a work group.
    Claim = 15, "CLAIM";
    /// Acknowledges claimed records.
    Ack = 16, "ACK";
    /// Returns claimed records for another delivery.
    Nack = 17, "NACK";
    /// The client sends no more requests. The node replies to the open requests, and then closes the connection.
    Leave = 18, "LEAVE";
    /// Options for the state that the next SUBSCRIBE follows.
    Follow = 19, "FOLLOW";
    /// A subscriber with a wrong copy of a state requests a snapshot, or the records after a position.
    Resync = 20, "RESYNC";
    /// Creates a topic with named settings.
    CreateTopicWith = 21, "CREATE_TOPIC_WITH";
    /// Describes the settings of a topic.
    DescribeSettings = 22, "DESCRIBE_SETTINGS";
    /// Extends the deadlines of claimed records.
    Renew = 23, "RENEW";
    /// A command or query for keys, leases or locks.
    Control = 24, "CONTROL";
    /// Task commands, a query about tasks, or a request to attach a worker.
    Tasks = 25, "TASKS";
    /// The records that the topic of the next OPEN_PUBLISHER must have.
    ExpectTopic = 26, "EXPECT_TOPIC";

    /// The client is accepted.
    Welcome = 65, "WELCOME";
    /// The client is refused.
    Refused = 66, "REFUSED";
    /// A batch of records for a channel.
    Batch = 67, "RUN";
    /// A publisher was opened.
    PublisherOpened = 68, "PUBLISHER_OPENED";
    /// A publisher was refused.
    PublisherRefused = 69, "PUBLISHER_REFUSED";
    /// Records were appended.
    Published = 70, "PUBLISHED";
    /// Records were refused.
    PublishRefused = 71, "PUBLISH_REFUSED";
    /// Assigns a channel to a log of a subscription.
    Log = 72, "LOG";
    /// All logs that existed at the subscription's start were announced.
    Subscribed = 73, "SUBSCRIBED";
    /// A subscription was refused or has ended.
    SubscriptionEnded = 74, "SUBSCRIPTION_ENDED";
    /// The subscriber lost records.
    Gap = 75, "GAP";
    /// The subscriber may soon lose records.
    Lagging = 76, "LAGGING";
    /// A log has a new epoch.
    EpochChanged = 77, "EPOCH_CHANGED";
    /// No record up to the stated position matches the subscription.
    Advance = 78, "ADVANCE";
    /// A log was deleted.
    Deleted = 79, "DELETED";
    /// A heartbeat with the positions of channels.
    Heartbeat = 80, "HEARTBEAT";
    /// The reply to PING.
    Pong = 81, "PONG";
    /// A request was executed.
    Done = 82, "DONE";
    /// A request was refused.
    RequestRefused = 83, "REQUEST_REFUSED";
    /// A page of a list of topics.
    Topics = 84, "TOPICS";
    /// The description of a topic.
    Topic = 85, "TOPIC";
    /// Records for a member of a group.
    Deliver = 86, "DELIVER";
    /// The result of an ACK, a NACK or a RENEW.
    Settled = 87, "SETTLED";
    /// The client violated the protocol; the connection closes.
    Error = 88, "ERROR";
    /// The node is stopping; the client should reconnect.
    Goodbye = 89, "GOODBYE";
    /// A part of a snapshot.
    Snapshot = 90, "SNAPSHOT";
    /// The checksum of a state.
    Checksum = 91, "CHECKSUM";
    /// The settings of a topic.
    Settings = 92, "SETTINGS";
    /// The reply to a CONTROL message.
    ControlResult = 93, "CONTROLLED";
    /// The reply to a TASKS message.
    TasksResult = 94, "TASKED";
    /// Orders for the connection's workers.
    TaskOrders = 95, "TASK_ORDERS";
    /// Properties of the topic of a publisher that was opened again.
    PublisherTopic = 96, "PUBLISHER_TOPIC";
    /// Whether a publisher of a state topic is connected.
    Publishers = 97, "PUBLISHERS";
}

impl MessageKind {
    /// Whether messages of this kind contain records, or the encoded commands and results of other crates.
    /// `DecoderLimits::run_bytes_max` applies to such messages, and `control_bytes_max` to all other messages.
    #[inline]
    pub fn carries_records(self) -> bool {
        matches!(
            self,
            MessageKind::Publish
                | MessageKind::Batch
                | MessageKind::Deliver
                | MessageKind::Control
                | MessageKind::ControlResult
                | MessageKind::Tasks
                | MessageKind::TasksResult
                | MessageKind::TaskOrders
        )
    }

    /// The protocol version that introduced the kind.
    #[inline]
    pub fn since(self) -> u8 {
        match self as u8 {
            97.. => 5,
            26..64 | 96 => 4,
            23..26 | 93..96 => 3,
            19..23 | 90..93 => 2,
            _ => 1,
        }
    }
}

/// The header of a message: its length, kind and flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// Length of the whole message, bytes.
    pub len: u32,
    /// The kind's number.
    pub kind: u8,
    /// Flags, whose meaning depends on the kind.
    pub flags: u8,
}

impl MessageHeader {
    /// Encodes the header.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let word = u64::from(self.len) | u64::from(self.kind) << 32 | u64::from(self.flags) << 40;
        word.to_le_bytes()
    }

    /// Reads a header; `None` if there are fewer than eight bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Option<MessageHeader>, WireError> {
        let Some(first) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let word = u64::from_le_bytes(*first);
        let header = MessageHeader { len: word as u32, kind: (word >> 32) as u8, flags: (word >> 40) as u8 };
        if (header.len as usize) < HEADER_BYTES || !(header.len as usize).is_multiple_of(MESSAGE_ALIGN) {
            return Err(WireError::Length(header.len));
        }
        let reserved = (word >> 48) as u16;
        if reserved != 0 {
            return Err(WireError::Reserved(reserved));
        }
        Ok(Some(header))
    }
}
