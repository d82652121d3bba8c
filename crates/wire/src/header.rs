//! Defines the header of messages, and the table of message kinds.
//!
//! ```text
//!  0          4      5       6          8
//!  +----------+------+-------+----------+-------------
//!  | len u32  | kind | flags | zero u16 | body …
//!  +----------+------+-------+----------+-------------
//! ```
//! `len` is the length of the whole message in bytes, a multiple of 8.

use crate::error::WireError;

/// Length of the header, bytes.
pub const HEADER_BYTES: usize = 8;
/// Each message starts at a multiple of this many bytes.
pub const MESSAGE_ALIGN: usize = 8;

/// A row of the table of message kinds: the kind, its name, and its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindRow {
    /// The kind.
    pub kind: MessageKind,
    /// The kind's name.
    pub name: &'static str,
    /// Whether clients send messages of this kind. If not, nodes send them.
    pub from_client: bool,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal;)*) => {
        /// The kind of a message. Kinds that clients send have numbers below 64, and kinds that nodes send have higher
        /// numbers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum MessageKind {
            $($(#[$doc])* $kind = $number,)*
        }

        /// All kinds, in the order of their numbers.
        pub const KINDS: &[KindRow] =
            &[$(KindRow { kind: MessageKind::$kind, name: $name, from_client: $number < 64 },)*];

        impl MessageKind {
            /// The kind with this number; `None` if no kind has it.
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
    /// Identifies the client.
    Hello = 1, "HELLO";
    /// Publishes records.
    Publish = 2, "PUBLISH";
    /// Opens a publisher of a topic, under a number that the client chooses.
    OpenPublisher = 3, "OPEN_PUBLISHER";
    /// Closes a publisher.
    ClosePublisher = 4, "CLOSE_PUBLISHER";
    /// States the positions from which a subscription resumes.
    Resume = 5, "RESUME";
    /// Begins a subscription.
    Subscribe = 6, "SUBSCRIBE";
    /// Ends a subscription, or leaves a group.
    Unsubscribe = 7, "UNSUBSCRIBE";
    /// Lets the node send more bytes, and reports consumed records.
    Credit = 8, "CREDIT";
    /// Requests the message PONG.
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
    /// Announces that the client sends no more requests. The node replies to the open requests, and then closes the
    /// connection.
    Leave = 18, "LEAVE";
    /// Sets options for how the next SUBSCRIBE follows the state of a state topic.
    Follow = 19, "FOLLOW";
    /// Requests a snapshot, or the records after a position, because the subscriber's copy of a state is wrong.
    Resync = 20, "RESYNC";
    /// Creates a topic with named settings.
    CreateTopicWithSettings = 21, "CREATE_TOPIC_WITH_SETTINGS";
    /// Requests the settings of a topic.
    DescribeSettings = 22, "DESCRIBE_SETTINGS";
    /// Extends the deadlines of claimed records.
    Renew = 23, "RENEW";
    /// Contains a command or a query for keys, leases or locks.
    Control = 24, "CONTROL";
    /// Contains commands for tasks, a query about tasks, or a request to attach a worker.
    Tasks = 25, "TASKS";
    /// States which records a topic must have so that a certain publisher of the topic may continue.
    ExpectTopic = 26, "EXPECT_TOPIC";

    /// Accepts the client.
    Welcome = 65, "WELCOME";
    /// Refuses the client.
    Refused = 66, "REFUSED";
    /// Contains a batch of records of one channel.
    Batch = 67, "RUN";
    /// Confirms that a publisher was opened.
    PublisherOpened = 68, "PUBLISHER_OPENED";
    /// Reports that a publisher was refused.
    PublisherRefused = 69, "PUBLISHER_REFUSED";
    /// Acknowledges records that were appended.
    Published = 70, "PUBLISHED";
    /// Reports that records were refused.
    PublishRefused = 71, "PUBLISH_REFUSED";
    /// Assigns a channel number to a log of a subscription.
    Log = 72, "LOG";
    /// Reports that a subscription has begun, and that all logs that existed at that time were announced.
    Subscribed = 73, "SUBSCRIBED";
    /// Reports that a subscription was refused or has ended.
    SubscriptionEnded = 74, "SUBSCRIPTION_ENDED";
    /// Reports which records the subscriber has lost.
    Gap = 75, "GAP";
    /// Warns that the subscriber may soon lose records.
    Lagging = 76, "LAGGING";
    /// Reports that a log has a new epoch.
    EpochChanged = 77, "EPOCH_CHANGED";
    /// Reports that no record up to a position is for this subscription.
    Advance = 78, "ADVANCE";
    /// Reports that a log was deleted.
    Deleted = 79, "DELETED";
    /// Shows that the connection works, and states the positions of channels.
    Heartbeat = 80, "HEARTBEAT";
    /// Replies to PING.
    Pong = 81, "PONG";
    /// Reports that a request was executed.
    Done = 82, "DONE";
    /// Reports that a request was refused.
    RequestRefused = 83, "REQUEST_REFUSED";
    /// Contains a page of the list of topics.
    Topics = 84, "TOPICS";
    /// Describes a topic.
    Topic = 85, "TOPIC";
    /// Contains records for a member of a group.
    Deliver = 86, "DELIVER";
    /// Replies to ACK, NACK or RENEW.
    Settled = 87, "SETTLED";
    /// Reports that the client has violated the protocol. The node then closes the connection.
    Error = 88, "ERROR";
    /// Announces that the node is stopping. The client should reconnect.
    Goodbye = 89, "GOODBYE";
    /// Contains a part of a snapshot.
    Snapshot = 90, "SNAPSHOT";
    /// Contains the checksum of a state.
    Checksum = 91, "CHECKSUM";
    /// Contains the settings of a topic.
    Settings = 92, "SETTINGS";
    /// Replies to CONTROL.
    ControlResult = 93, "CONTROLLED";
    /// Replies to TASKS.
    TasksResult = 94, "TASKED";
    /// Contains orders for the connection's workers.
    TaskOrders = 95, "TASK_ORDERS";
    /// States properties of the topic of a publisher that was opened again.
    PublisherTopic = 96, "PUBLISHER_TOPIC";
    /// Reports whether any publisher of a state topic is connected.
    Publishers = 97, "PUBLISHERS";
}

impl MessageKind {
    /// Whether messages of this kind can be large, because they contain records, or commands and results of other
    /// crates. The limit `DecoderLimits::run_bytes_max` applies to such messages, and `control_bytes_max` to all
    /// others.
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

    /// The first protocol version that has this kind of message.
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

/// The header of a message: its length, its kind and its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// Length of the whole message, bytes.
    pub len: u32,
    /// The number of the message's kind.
    pub kind: u8,
    /// Flags, whose meaning depends on the kind of the message.
    pub flags: u8,
}

impl MessageHeader {
    /// Encodes the header.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let word = u64::from(self.len) | u64::from(self.kind) << 32 | u64::from(self.flags) << 40;
        word.to_le_bytes()
    }

    /// Decodes the header at the start of `bytes`; `None` if there are fewer than eight bytes.
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
