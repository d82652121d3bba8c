//! Defines the messages for subscriptions and their channels. A channel is the number under which the node sends the
//! records of one log for one subscription.

use crate::code::Refusal;
use crate::error::WireError;
use crate::layout::{Fields, Layout, choice, layout};
use crate::list::MessageList;

/// Stands in place of a partition's number in a RESUME with which a node requests the records of another node's topic.
/// The epoch in this RESUME is then an epoch of the topic's placement, which no other topic of this name has. Owners of
/// earlier releases ignore such a RESUME.
pub const PLACEMENT: u16 = u16::MAX;

layout! {
    /// A position in a log: an epoch and a sequence number.
    pub struct Position {
        /// The epoch, which becomes higher when the owner may have lost earlier records.
        pub epoch: u32,
        /// The sequence number within the epoch, from 1 on; 0 is before the first record.
        pub seq: u64,
    }
}

layout! {
    /// The position of a subscriber in one log.
    pub struct LogPosition<'a> {
        /// The topic's name.
        pub topic: &'a str,
        /// The partition's number, or [`PLACEMENT`].
        pub partition: u16,
        /// The position of the last record that the subscriber received.
        pub position: Position,
    }
}

layout! {
    /// Message RESUME: contains the positions from which the next SUBSCRIBE with the same subscription number
    /// continues. A client may send several RESUME messages before one SUBSCRIBE.
    pub struct Resume<'a> {
        /// The subscription's number.
        pub subscription: u32,
        /// The positions, one for each log.
        pub logs: MessageList<'a, LogPosition<'a>>,
    }
}

/// The position at which a subscription starts. It is encoded as a `u8`, which selects the variant, a position and a
/// `u64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// 0: at the oldest retained record.
    Earliest,
    /// 1: at the next record that is published.
    Latest,
    /// 2: after the given position. Only allowed for a subscription to one log.
    After(Position),
    /// 3: at the first record that was appended at the given time or later, in ns since the Unix epoch.
    Time(u64),
    /// 4: after the positions in RESUME. A log for which RESUME has no position starts at its oldest retained record,
    /// or with its state if FOLLOW has requested states.
    Resume,
}

impl<'a> Layout<'a> for StartAt {
    fn read(fields: &mut Fields<'a>) -> Result<StartAt, WireError> {
        let choice = u8::read(fields)?;
        let position = Position::read(fields)?;
        let time_ns = u64::read(fields)?;
        match choice {
            0 => Ok(StartAt::Earliest),
            1 => Ok(StartAt::Latest),
            2 => Ok(StartAt::After(position)),
            3 => Ok(StartAt::Time(time_ns)),
            4 => Ok(StartAt::Resume),
            _ => Err(fields.invalid_value("start")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let no_position = Position { epoch: 0, seq: 0 };
        let (choice, position, time_ns) = match *self {
            StartAt::Earliest => (0u8, no_position, 0),
            StartAt::Latest => (1, no_position, 0),
            StartAt::After(position) => (2, position, 0),
            StartAt::Time(time_ns) => (3, no_position, time_ns),
            StartAt::Resume => (4, no_position, 0),
        };
        choice.write(out);
        position.write(out);
        time_ns.write(out);
    }
}

choice! {
    /// Where a subscription continues after a gap.
    pub enum OnGap {
        /// At the oldest retained record.
        Oldest = 0,
        /// At the next record that is published.
        Newest = 1,
        /// Nowhere: the subscription reports the gap and ends.
        Fail = 2,
    }
}

layout! {
    /// Message SUBSCRIBE: begins a subscription.
    pub struct Subscribe<'a> {
        /// The number that the client has chosen for the subscription. No other subscription of the same connection may
        /// have this number.
        pub subscription: u32,
        /// Number of bytes that the node may send before it receives a CREDIT message.
        pub credit: u64,
        /// The position at which the subscription starts.
        pub start: StartAt,
        /// Where the subscription continues after a gap.
        pub on_gap: OnGap,
        /// Whether the publishers of a reliable topic wait for this subscriber.
        pub registered: bool,
        /// The pattern that the subjects of records must match.
        pub pattern: &'a str,
        /// The subscription's name, which operators see.
        pub name: &'a str,
    }
}

layout! {
    /// The position of a subscriber in the log of one channel.
    pub struct ChannelPosition {
        /// The channel's number.
        pub channel: u32,
        /// The position in the log.
        pub position: Position,
    }
}

layout! {
    /// Message CREDIT: lets the node send more bytes, and reports consumed records.
    pub struct Credit<'a> {
        /// The number of the subscription or group membership.
        pub subscription: u32,
        /// Number of bytes that the node may send in total since SUBSCRIBE, including the credit in SUBSCRIBE. It never
        /// decreases.
        pub granted: u64,
        /// The position up to which records were consumed, for each channel whose consumed position has changed.
        /// Reliable topics, share groups and conflated subscriptions need these positions.
        pub consumed: MessageList<'a, ChannelPosition>,
    }
}

layout! {
    /// Message LOG: assigns a channel to a log of a subscription. The node never gives the number of a channel to
    /// another log.
    pub struct Log<'a> {
        /// The subscription's number.
        pub subscription: u32,
        /// The number of the channel.
        pub channel: u32,
        /// The partition's number.
        pub partition: u16,
        /// The position before the first record that the subscription can receive from this log.
        pub after: Position,
        /// The topic's name.
        pub topic: &'a str,
        /// The literal part at the start of the topic's pattern. The subject of a record is this prefix followed by the
        /// record's subject tail.
        pub subject_prefix: &'a str,
    }
}

layout! {
    /// Message SUBSCRIBED: reports that a subscription has begun, after LOG messages for all logs that existed at that
    /// time.
    pub struct Subscribed {
        /// The subscription's number.
        pub subscription: u32,
        /// Number of logs for which LOG was sent.
        pub logs: u32,
    }
}

layout! {
    /// Message SUBSCRIPTION_ENDED: reports that a subscription was refused or has ended. The client may use the
    /// subscription's number again.
    pub struct SubscriptionEnded<'a> {
        /// The subscription's number.
        pub subscription: u32,
        /// The reason why it ended; the code is `ENDED` after UNSUBSCRIBE.
        pub refusal: Refusal<'a>,
    }
}

layout! {
    /// Message GAP: reports records that left the log before this subscriber received them.
    pub struct GapMessage {
        /// The channel's number.
        pub channel: u32,
        /// The epoch of the missing records.
        pub epoch: u32,
        /// Sequence number of the first missing record.
        pub first: u64,
        /// Sequence number of the last missing record.
        pub last: u64,
    }
}

layout! {
    /// Message LAGGING: warns that more than half of the log's retained records are still unread by this subscriber.
    pub struct Lagging {
        /// The channel's number.
        pub channel: u32,
        /// Number of records that the subscriber has not read yet.
        pub behind: u64,
        /// Number of records that the log retains.
        pub retained: u64,
    }
}

layout! {
    /// Message EPOCH_CHANGED: reports that a log has a new epoch.
    pub struct EpochChanged {
        /// The channel's number.
        pub channel: u32,
        /// The epoch that has ended.
        pub old: u32,
        /// Sequence number of the last record of the ended epoch that this subscriber received.
        pub last_seen: u64,
        /// Sequence number of the last record that the ended epoch had; `None` if it is unknown.
        pub known_through: Option<u64>,
        /// The position before the first record of the new epoch that the subscriber can receive.
        pub new_first: Position,
    }
}

layout! {
    /// Message ADVANCE: reports that no record between the subscriber's position and `through` is for this subscriber.
    pub struct Advance {
        /// The channel's number.
        pub channel: u32,
        /// The new position of the subscriber in the log.
        pub through: Position,
    }
}

layout! {
    /// Message DELETED: reports that a log was deleted. Its channel ends.
    pub struct Deleted {
        /// The channel's number.
        pub channel: u32,
        /// The last position in the log.
        pub last: Position,
    }
}

layout! {
    /// Message HEARTBEAT: shows that the connection works, and states up to which positions the node has sent records,
    /// so that a subscriber can detect a loss.
    pub struct Heartbeat<'a> {
        /// The last position that was sent on each channel, for channels on which RUN, GAP or ADVANCE was sent since
        /// the previous heartbeat.
        pub channels: MessageList<'a, ChannelPosition>,
    }
}
