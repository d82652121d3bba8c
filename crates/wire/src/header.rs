//! The eight bytes in front of every message, and the table of kinds.
//!
//! ```text
//!  0          4      5       6          8
//!  +----------+------+-------+----------+-------------
//!  | len u32  | kind | flags | zero u16 | body …
//!  +----------+------+-------+----------+-------------
//! ```
//! `len` is the whole message, header and padding included, and a multiple of 8.

use crate::error::WireError;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;
/// Messages start at multiples of this.
pub const MESSAGE_ALIGN: usize = 8;

/// One row of the table of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindRow {
    /// The kind.
    pub kind: Kind,
    /// Its name in documents.
    pub name: &'static str,
    /// Whether it comes from the client.
    pub from_client: bool,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal;)*) => {
        /// What a message is. Numbers below 64 come from the client, the others from the node.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $kind = $number,)*
        }

        /// Every kind there is, in order of its number.
        pub const KINDS: &[KindRow] =
            &[$(KindRow { kind: Kind::$kind, name: $name, from_client: $number < 64 },)*];

        impl Kind {
            /// The kind with this number.
            #[inline]
            pub fn from_number(number: u8) -> Option<Kind> {
                match number {
                    $($number => Some(Kind::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Who the client is.
    Hello = 1, "HELLO";
    /// Records to append.
    Publish = 2, "PUBLISH";
    /// Gives a number to a topic to publish to.
    OpenPublisher = 3, "OPEN_PUBLISHER";
    /// Gives the number back.
    ClosePublisher = 4, "CLOSE_PUBLISHER";
    /// Positions for a subscription that goes on where it was.
    Resume = 5, "RESUME";
    /// Begins a subscription.
    Subscribe = 6, "SUBSCRIBE";
    /// Ends a subscription, or leaves a group.
    Unsubscribe = 7, "UNSUBSCRIBE";
    /// Allows more bytes, and says what was consumed.
    Credit = 8, "CREDIT";
    /// Asks for a sign of life.
    Ping = 9, "PING";
    /// Creates a topic.
    CreateTopic = 10, "CREATE_TOPIC";
    /// Deletes a topic.
    DeleteTopic = 11, "DELETE_TOPIC";
    /// Lists topics.
    ListTopics = 12, "LIST_TOPICS";
    /// Asks for all about one topic.
    DescribeTopic = 13, "DESCRIBE_TOPIC";
    /// Becomes a member of a group.
    JoinGroup = 14, "JOIN_GROUP";
    /// Asks for more records of a work group.
    Claim = 15, "CLAIM";
    /// Claimed records are done.
    Ack = 16, "ACK";
    /// Claimed records are to be given to somebody again.
    Nack = 17, "NACK";
    /// The client is done: answer what is open, then close.
    Leave = 18, "LEAVE";
    /// What the next SUBSCRIBE wants of the states of stateful topics.
    Follow = 19, "FOLLOW";
    /// A reader has found out that it is no longer right.
    Resync = 20, "RESYNC";
    /// Creates a topic with settings that have names.
    CreateTopicWith = 21, "CREATE_TOPIC_WITH";
    /// Asks for the settings of a topic, and what has become of them.
    DescribeSettings = 22, "DESCRIBE_SETTINGS";
    /// Claimed records are needed for longer.
    Renew = 23, "RENEW";
    /// A command or a question about keys and values, leases or locks.
    Control = 24, "CONTROL";
    /// Commands or a question about tasks, or a worker that attaches.
    Tasks = 25, "TASKS";
    /// What the next OPEN_PUBLISHER expects of its topic.
    ExpectTopic = 26, "EXPECT_TOPIC";

    /// The client is let in.
    Welcome = 65, "WELCOME";
    /// The client is not let in.
    Refused = 66, "REFUSED";
    /// Records of a channel.
    Run = 67, "RUN";
    /// A publisher may publish.
    PublisherOpened = 68, "PUBLISHER_OPENED";
    /// A publisher may not publish.
    PublisherRefused = 69, "PUBLISHER_REFUSED";
    /// Records were appended.
    Published = 70, "PUBLISHED";
    /// Records were not appended.
    PublishRefused = 71, "PUBLISH_REFUSED";
    /// A log of a subscription gets a channel.
    Log = 72, "LOG";
    /// All logs that exist were announced.
    Subscribed = 73, "SUBSCRIBED";
    /// A subscription was refused, or is over.
    SubscriptionEnded = 74, "SUBSCRIPTION_ENDED";
    /// Records were lost to this reader.
    Gap = 75, "GAP";
    /// Records may soon be lost to this reader.
    Lagging = 76, "LAGGING";
    /// A log began anew.
    EpochChanged = 77, "EPOCH_CHANGED";
    /// Nothing of interest through this position.
    Advance = 78, "ADVANCE";
    /// A log was deleted.
    Deleted = 79, "DELETED";
    /// A sign of life, and where channels stand.
    Heartbeat = 80, "HEARTBEAT";
    /// The answer to PING.
    Pong = 81, "PONG";
    /// A request was done.
    Done = 82, "DONE";
    /// A request was refused.
    RequestRefused = 83, "REQUEST_REFUSED";
    /// A page of the list of topics.
    Topics = 84, "TOPICS";
    /// All about one topic.
    Topic = 85, "TOPIC";
    /// Records for a member of a group.
    Deliver = 86, "DELIVER";
    /// What became of an ACK, a NACK or a RENEW.
    Settled = 87, "SETTLED";
    /// The client broke the protocol; the connection closes.
    Error = 88, "ERROR";
    /// The node is shutting down; come back.
    Goodbye = 89, "GOODBYE";
    /// Part of a state.
    Snapshot = 90, "SNAPSHOT";
    /// What a state adds up to.
    Checksum = 91, "CHECKSUM";
    /// The settings of a topic.
    Settings = 92, "SETTINGS";
    /// What came of a CONTROL.
    Controlled = 93, "CONTROLLED";
    /// What came of a TASKS.
    Tasked = 94, "TASKED";
    /// What the connection's workers are to do.
    TaskOrders = 95, "TASK_ORDERS";
    /// What a publisher has to know of its topic when it opens it again.
    PublisherTopic = 96, "PUBLISHER_TOPIC";
    /// Whether a publisher of a stateful topic is connected.
    Publishers = 97, "PUBLISHERS";
}

impl Kind {
    /// Whether messages of this kind carry records, or values, and so have the larger limit.
    #[inline]
    pub fn carries_records(self) -> bool {
        matches!(
            self,
            Kind::Publish
                | Kind::Run
                | Kind::Deliver
                | Kind::Control
                | Kind::Controlled
                | Kind::Tasks
                | Kind::Tasked
                | Kind::TaskOrders
        )
    }

    /// The version of the protocol that it came with.
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

/// The header of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// Bytes of the whole message.
    pub len: u32,
    /// The kind's number.
    pub kind: u8,
    /// What they mean depends on the kind.
    pub flags: u8,
}

impl MessageHeader {
    /// Its bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let word = u64::from(self.len) | u64::from(self.kind) << 32 | u64::from(self.flags) << 40;
        word.to_le_bytes()
    }

    /// Reads a header; `None` while fewer than eight bytes are there.
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
