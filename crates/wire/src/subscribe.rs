//! Messages for subscriptions and their channels.

use crate::code::Refusal;
use crate::error::WireError;
use crate::layout::{Fields, Layout, choice, layout};
use crate::list::MessageList;

layout! {
    /// A position in a log: an epoch and a sequence number.
    pub struct Position {
        /// The epoch, which grows when the owner may have lost earlier records.
        pub epoch: u32,
        /// The sequence number within the epoch, from 1; 0 is the position before the first record.
        pub seq: u64,
    }
}

layout! {
    /// The position of a subscriber in one log: the last record that it has received.
    pub struct LogPosition<'a> {
        /// The topic's name.
        pub topic: &'a str,
        /// The partition's number.
        pub partition: u16,
        /// The last record that the subscriber received.
        pub position: Position,
    }
}

layout! {
    /// Message RESUME: the positions from which the next SUBSCRIBE with the same subscription number continues. A
    /// client may send several RESUME messages before one SUBSCRIBE.
    pub struct Resume<'a> {
        /// The subscription's number.
        pub subscription: u32,
        /// The positions, one for each log.
        pub logs: MessageList<'a, LogPosition<'a>>,
    }
}

/// The position at which a subscription starts. Its encoding is a `u8`, a position and a `u64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// 0: at the oldest retained record.
    Earliest,
    /// 1: at the next record to be published.
    Latest,
    /// 2: after this position. Only for a subscription to one log.
    After(Position),
    /// 3: at the first record appended at or after this time, ns since the Unix epoch.
    Time(u64),
    /// 4: after the positions in RESUME. A log without such a position starts at its oldest retained record, or with
    /// its state if the subscription follows states.
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
    /// The position at which a subscription continues after a gap.
    pub enum OnGap {
        /// At the oldest retained record.
        Oldest = 0,
        /// At the next record to be published.
        Newest = 1,
        /// The subscription ends after it has reported the gap.
        Fail = 2,
    }
}

layout! {
    /// Message SUBSCRIBE: starts a subscription.
    pub struct Subscribe<'a> {
        /// The number that the client chose for the subscription. No other subscription of this connection may have the
        /// same number.
        pub subscription: u32,
        /// Initial credit: number of bytes that the node may send. Later CREDIT messages grant more bytes.
        pub credit: u64,
        /// The position at which the subscription starts.
        pub start: StartAt,
        /// The position at which the subscription continues after a gap.
        pub on_gap: OnGap,
        /// Whether the publishers of a reliable topic wait for this subscriber.
        pub registered: bool,
        /// The pattern of subjects.
        pub pattern: &'a str,
        /// The subscription's name, for operators.
        pub name: &'a str,
    }
}

layout! {
    /// The position of a subscriber in the log of one channel.
    pub struct ChannelPosition {
        /// The channel's number.
        pub channel: u32,
        /// The position in this log.
        pub position: Position,
    }
}

layout! {
    /// Message CREDIT: grants the node more bytes to send, and reports consumed records.
    pub struct Credit<'a> {
        /// The subscription's number.
        pub subscription: u32,
        /// Total number of bytes granted since SUBSCRIBE, including the credit in SUBSCRIBE. The number never
        /// decreases.
        pub granted: u64,
        /// For channels of reliable topics, the last record that was consumed. Channels without a change may be
        /// omitted.
        pub consumed: MessageList<'a, ChannelPosition>,
    }
}

layout! {
    /// Message LOG: assigns a channel to a log of a subscription. A channel's number is not reused for another log.
    pub struct Log<'a> {
        /// The subscription's number.
        pub subscription: u32,
        /// The channel's number.
        pub channel: u32,
        /// The partition's number.
        pub partition: u16,
        /// The position before the first record that the subscription can receive.
        pub after: Position,
        /// The topic's name.
        pub topic: &'a str,
        /// The literal start of the topic's pattern. A record's subject consists of this prefix and the record's tail.
        pub subject_prefix: &'a str,
    }
}

layout! {
    /// Message SUBSCRIBED: a subscription has begun, and the LOG messages for all its existing logs were sent.
    pub struct Subscribed {
        /// The subscription's number.
        pub subscription: u32,
        /// Number of logs that were announced.
        pub logs: u32,
    }
}

layout! {
    /// Message SUBSCRIPTION_ENDED: a subscription was refused or has ended. The subscription's number is free again.
    pub struct SubscriptionEnded<'a> {
        /// The subscription's number.
        pub subscription: u32,
        /// The reason; `ENDED` after UNSUBSCRIBE.
        pub refusal: Refusal<'a>,
    }
}

layout! {
    /// Message GAP: records left the log before this subscriber read them.
    pub struct GapMessage {
        /// The channel's number.
        pub channel: u32,
        /// The epoch of the missing records.
        pub epoch: u32,
        /// The first missing sequence number.
        pub first: u64,
        /// The last missing sequence number.
        pub last: u64,
    }
}

layout! {
    /// Message LAGGING: the subscriber has still to read more than half of the retained records.
    pub struct Lagging {
        /// The channel's number.
        pub channel: u32,
        /// Number of records that the subscriber has not read.
        pub behind: u64,
        /// Number of records that the log retains.
        pub retained: u64,
    }
}

layout! {
    /// Message EPOCH_CHANGED: a log has a new epoch.
    pub struct EpochChanged {
        /// The channel's number.
        pub channel: u32,
        /// The epoch that ended.
        pub old: u32,
        /// Sequence number of the last record of the ended epoch that the subscriber received.
        pub last_seen: u64,
        /// Sequence number of the last record that the ended epoch is known to have had; `None` if this is unknown.
        pub known_through: Option<u64>,
        /// The position before the first record of the new epoch that the subscriber can receive.
        pub new_first: Position,
    }
}

layout! {
    /// Message ADVANCE: up to a given position, the log has no further records for this subscriber.
    pub struct Advance {
        /// The channel's number.
        pub channel: u32,
        /// The position up to which no record follows for this subscriber.
        pub through: Position,
    }
}

layout! {
    /// Message DELETED: a log was deleted, and the log's channel has ended.
    pub struct Deleted {
        /// The channel's number.
        pub channel: u32,
        /// The log's last position.
        pub last: Position,
    }
}

layout! {
    /// Message HEARTBEAT: the positions up to which the node has sent records, so that a subscriber can detect lost
    /// records.
    pub struct Heartbeat<'a> {
        /// The last sent position of each channel for which RUN, GAP or ADVANCE was sent since the last heartbeat.
        pub channels: MessageList<'a, ChannelPosition>,
    }
}
