//! Subscribing: what a client asks for, the channels it gets, and what they say besides records.

use crate::code::Refusal;
use crate::error::WireError;
use crate::layout::{Fields, Layout, choice, layout};
use crate::list::List;

layout! {
    /// A place in a log.
    pub struct Position {
        /// Grows whenever the log cannot vouch for what went before.
        pub epoch: u32,
        /// The record's number within the epoch, from 1; 0 is before the first.
        pub seq: u64,
    }
}

layout! {
    /// Where a reader stands in one log: the last record it was given.
    pub struct LogPosition<'a> {
        /// The topic's name.
        pub topic: &'a str,
        /// The partition.
        pub partition: u16,
        /// The last record the reader was given there.
        pub position: Position,
    }
}

layout! {
    /// Positions for the subscription that the next SUBSCRIBE of this number resumes. May come in
    /// several messages.
    pub struct Resume<'a> {
        /// The subscription's number.
        pub subscription: u32,
        /// Where it stood.
        pub logs: List<'a, LogPosition<'a>>,
    }
}

/// Where a subscription starts: one `u8`, a position, a `u64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// 0: at the oldest record still held.
    Earliest,
    /// 1: at the next record to be published.
    Latest,
    /// 2: after this position. Only for one log.
    After(Position),
    /// 3: at the first record appended at or after this time, ns since the Unix epoch.
    Time(u64),
    /// 4: after the positions that RESUME gave; a log it did not name, at its first record.
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
            _ => Err(fields.unsound("start")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let nowhere = Position { epoch: 0, seq: 0 };
        let (choice, position, time_ns) = match *self {
            StartAt::Earliest => (0u8, nowhere, 0),
            StartAt::Latest => (1, nowhere, 0),
            StartAt::After(position) => (2, position, 0),
            StartAt::Time(time_ns) => (3, nowhere, time_ns),
            StartAt::Resume => (4, nowhere, 0),
        };
        choice.write(out);
        position.write(out);
        time_ns.write(out);
    }
}

choice! {
    /// Where a reader goes on after records were lost to it.
    pub enum OnGap {
        /// At the oldest record still held.
        Oldest = 0,
        /// At the next record to be published.
        Newest = 1,
        /// Nowhere: the subscription ends after the gap was told.
        Fail = 2,
    }
}

layout! {
    /// Begins a subscription.
    pub struct Subscribe<'a> {
        /// The client's number for it, not in use on this connection.
        pub subscription: u32,
        /// Bytes the node may send for a start; CREDIT adds to them.
        pub credit: u64,
        /// Where to start.
        pub start: StartAt,
        /// Where to go on after a loss.
        pub on_gap: OnGap,
        /// On reliable topics: count as one of the readers the publisher waits for.
        pub registered: bool,
        /// Which subjects.
        pub pattern: &'a str,
        /// A name that operators see.
        pub name: &'a str,
    }
}

layout! {
    /// Where a channel stands.
    pub struct ChannelPosition {
        /// The channel.
        pub channel: u32,
        /// The position.
        pub position: Position,
    }
}

layout! {
    /// Allows more bytes, and says what was consumed.
    pub struct Credit<'a> {
        /// The subscription.
        pub subscription: u32,
        /// Bytes allowed since SUBSCRIBE in total, its own credit included. Never falls.
        pub granted: u64,
        /// The last record consumed on channels of reliable topics; others may be left out.
        pub consumed: List<'a, ChannelPosition>,
    }
}

layout! {
    /// A log of a subscription gets a channel. A channel's number is never used for another log
    /// while the connection lasts.
    pub struct Log<'a> {
        /// The subscription.
        pub subscription: u32,
        /// The channel.
        pub channel: u32,
        /// The partition.
        pub partition: u16,
        /// The reader stands after this record: the next one is the first it can be given.
        pub after: Position,
        /// The topic's name.
        pub topic: &'a str,
        /// The literal start of the topic's pattern: a record's subject is it and the tail.
        pub subject_prefix: &'a str,
    }
}

layout! {
    /// Every log that existed has been announced.
    pub struct Subscribed {
        /// The subscription.
        pub subscription: u32,
        /// How many logs that were.
        pub logs: u32,
    }
}

layout! {
    /// The subscription was refused, or is over. Its number is free again.
    pub struct SubscriptionEnded<'a> {
        /// The subscription.
        pub subscription: u32,
        /// Why; `AS_ASKED` after UNSUBSCRIBE.
        pub refusal: Refusal<'a>,
    }
}

layout! {
    /// Records were dropped before this reader came to them.
    pub struct GapMessage {
        /// The channel.
        pub channel: u32,
        /// Their epoch.
        pub epoch: u32,
        /// The first that is missing.
        pub first: u64,
        /// The last that is missing.
        pub last: u64,
    }
}

layout! {
    /// More than half of the history lies ahead of this reader.
    pub struct Lagging {
        /// The channel.
        pub channel: u32,
        /// Records it has yet to read.
        pub behind: u64,
        /// Records the log holds at present.
        pub retained: u64,
    }
}

layout! {
    /// The log began anew.
    pub struct EpochChanged {
        /// The channel.
        pub channel: u32,
        /// The epoch that ended.
        pub old: u32,
        /// The last record of it that this reader was given.
        pub last_seen: u64,
        /// The last record of it that is known to have existed; none when nobody can know.
        pub known_through: Option<u64>,
        /// Where the new epoch's records begin for this reader.
        pub new_first: Position,
    }
}

layout! {
    /// Nothing of the reader's interest through this position.
    pub struct Advance {
        /// The channel.
        pub channel: u32,
        /// Read through here.
        pub through: Position,
    }
}

layout! {
    /// The log was deleted. The channel is over.
    pub struct Deleted {
        /// The channel.
        pub channel: u32,
        /// The log's last position.
        pub last: Position,
    }
}

layout! {
    /// A sign of life. As messages come in order, a reader stands exactly where this says.
    pub struct Heartbeat<'a> {
        /// For channels on which something was sent since the last heartbeat: the last position
        /// sent, be it by RUN, GAP or ADVANCE.
        pub channels: List<'a, ChannelPosition>,
    }
}
