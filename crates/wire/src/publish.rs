//! Publishing: opening a number for a topic, records, and what became of them.

use crate::code::Refusal;
use crate::error::WireError;
use crate::header::Kind;
use crate::layout::{Fields, Layout, choice, layout};
use crate::subscribe::Position;

/// PUBLISH flag: the publisher waits; acknowledge at once.
pub const FLAG_ACK: u8 = 1 << 0;
/// PUBLISH flag: never acknowledge; only a refusal is told.
pub const FLAG_QUIET: u8 = 1 << 1;
/// PUBLISH flag: append only if `expect_seq` is the log's last sequence.
pub const FLAG_EXPECT: u8 = 1 << 2;
/// The producer id of publishers without identity: nothing of theirs is deduplicated.
pub const NO_PRODUCER: u64 = 0;
/// The producer epoch, with [`NO_PRODUCER`], by which a node says to the owner of a topic that publishers of it are connected
/// to the node, until it closes this publisher. Nothing is published by it.
pub const PRESENT: u32 = u32::MAX;

layout! {
    /// Gives a number to a topic to publish to.
    ///
    /// PUBLISH may follow without waiting for the answer when the topic's literal prefix is known.
    pub struct OpenPublisher<'a> {
        /// The client's number for it, not in use on this connection.
        pub publisher: u32,
        /// Who produces, over connections and restarts; [`NO_PRODUCER`] for no identity.
        pub producer: u64,
        /// Grows with each new instance of the producer and shuts older ones out.
        pub producer_epoch: u32,
        /// A subject that one topic owns, or the topic's very pattern.
        pub subject: &'a str,
    }
}

layout! {
    /// What the next OPEN_PUBLISHER of this number, which was open before, expects of its topic. A node that hands on a run says
    /// it before PUBLISH of an open number, for the run's publisher. Since version 4.
    pub struct ExpectTopic<'a> {
        /// The client's number for it.
        pub publisher: u32,
        /// Whether the node may make the topic, with its own defaults, if there is none.
        pub create: bool,
        /// The last records that the node has acknowledged, by partition. Where the topic keeps a state and has lost one of
        /// them, the publisher is refused with `STATE_LOST`.
        pub acknowledged: crate::list::List<'a, LastAcknowledged>,
    }
}

layout! {
    /// The last record of a partition that the node has acknowledged to a publisher.
    pub struct LastAcknowledged {
        /// The partition.
        pub partition: u16,
        /// Where the record stands.
        pub position: Position,
    }
}

layout! {
    /// Comes before PUBLISHER_OPENED: what a publisher has to know when it opens the topic again. Since version 4.
    pub struct PublisherTopic {
        /// The publisher's number.
        pub publisher: u32,
        /// The node makes such a topic by itself.
        pub by_itself: bool,
        /// The topic keeps a state.
        pub keeps_state: bool,
    }
}

layout! {
    /// The publisher may publish.
    pub struct PublisherOpened<'a> {
        /// Its number.
        pub publisher: u32,
        /// How many partitions the topic has.
        pub partitions: u16,
        /// The largest record the topic takes, with meta and padding, bytes.
        pub record_bytes_max: u32,
        /// The topic's name.
        pub topic: &'a str,
        /// The literal start of the topic's pattern: a record's subject tail is what follows it.
        pub subject_prefix: &'a str,
        /// The last producer sequence the topic knows of this producer, by partition; nothing for
        /// a producer it does not know.
        pub last_seqs: crate::list::List<'a, u64>,
    }
}

layout! {
    /// The publisher may not publish. What it sent is dropped until its number is opened again.
    pub struct PublisherRefused<'a> {
        /// Its number.
        pub publisher: u32,
        /// Why.
        pub refusal: Refusal<'a>,
    }
}

/// What stands before the frames of a PUBLISH; as long as a run header, and laid out alike.
///
/// ```text
///  0           4           8            16             24      28      32
///  +-----------+-----------+------------+--------------+-------+-------+----------
///  | publisher | partition | expect_seq | producer_seq | count | bytes | frames …
///  | u32       | u32       | u64        | u64          | u32   | u32   |
///  +-----------+-----------+------------+--------------+-------+-------+----------
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PublishHeader {
    /// The number given in OPEN_PUBLISHER.
    pub publisher: u32,
    /// Which partition; producer sequences are counted for each.
    pub partition: u32,
    /// With [`FLAG_EXPECT`], what the log's last sequence has to be; else 0.
    pub expect_seq: u64,
    /// The publisher's number for the first record, from 1; the others follow at +1 each.
    pub producer_seq: u64,
    /// How many records. They are appended together, or none is.
    pub count: u32,
    /// How many bytes of frames follow.
    pub bytes: u32,
}

impl PublishHeader {
    /// The publisher's number for the last record.
    #[inline]
    pub fn last_producer_seq(&self) -> u64 {
        self.producer_seq + u64::from(self.count) - 1
    }

    /// What stands before the frames of a PUBLISH whose end has not come: for a node that refuses it as
    /// soon as it knows whose it is. `None` for any other message, or one that is not sound.
    pub fn of_unfinished(message: &[u8]) -> Option<PublishHeader> {
        let head = crate::MessageHeader::parse(message).ok()??;
        let run = dunlin_frame::RunHeader::parse(message.get(crate::HEADER_BYTES..)?).ok()?;
        let sound = head.kind == Kind::Publish as u8 && run.count > 0 && run.first_seq > 0;
        let end = run.first_seq.checked_add(u64::from(run.count));
        (sound && end.is_some()).then_some(PublishHeader {
            publisher: run.topic_id,
            partition: run.epoch,
            expect_seq: run.prev_seq,
            producer_seq: run.first_seq,
            count: run.count,
            bytes: run.bytes,
        })
    }

    pub(crate) fn parse(fields: &mut Fields<'_>, flags: u8) -> Result<PublishHeader, WireError> {
        let header = PublishHeader {
            publisher: u32::read(fields)?,
            partition: u32::read(fields)?,
            expect_seq: u64::read(fields)?,
            producer_seq: u64::read(fields)?,
            count: u32::read(fields)?,
            bytes: u32::read(fields)?,
        };
        if flags & !(FLAG_ACK | FLAG_QUIET | FLAG_EXPECT) != 0
            || flags & FLAG_ACK != 0 && flags & FLAG_QUIET != 0
        {
            return Err(WireError::Flags { kind: Kind::Publish, flags });
        }
        if header.count == 0 || header.producer_seq == 0 {
            return Err(fields.unsound("count or producer sequence of zero"));
        }
        if header.producer_seq.checked_add(u64::from(header.count)).is_none() {
            return Err(fields.unsound("producer sequence"));
        }
        if flags & FLAG_EXPECT == 0 && header.expect_seq != 0 {
            return Err(fields.unsound("expected sequence without its flag"));
        }
        if header.bytes as usize != fields.rest.len() {
            return Err(fields.unsound("byte count of frames"));
        }
        Ok(header)
    }

    pub(crate) fn to_bytes(self) -> [u8; dunlin_frame::RUN_HEADER_BYTES] {
        // The shape is a run header's; only the meaning of four fields differs.
        dunlin_frame::RunHeader {
            topic_id: self.publisher,
            epoch: self.partition,
            prev_seq: self.expect_seq,
            first_seq: self.producer_seq,
            count: self.count,
            bytes: self.bytes,
        }
        .to_bytes()
    }
}

/// Records to append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// [`FLAG_ACK`], [`FLAG_QUIET`], [`FLAG_EXPECT`].
    pub flags: u8,
    /// Whose, where, and how many.
    pub header: PublishHeader,
    /// The frames, not yet checked. Their append time is 0.
    pub frames: &'a [u8],
}

choice! {
    /// What an acknowledgement stands for.
    pub enum AckKind {
        /// The owner holds the record in memory.
        Memory = 0,
        /// The owner has written it to its disk's cache.
        Written = 1,
        /// The owner's disk has said that it is stored.
        Synced = 2,
        /// A majority of replicas have it.
        Quorum = 3,
    }
}

layout! {
    /// Everything this publisher sent to this partition through this number is answered for, save
    /// what a PUBLISH_REFUSED has told of.
    pub struct Published {
        /// The publisher.
        pub publisher: u32,
        /// The partition.
        pub partition: u32,
        /// The publisher's number of the last record that is acknowledged.
        pub through: u64,
        /// Where that record stands.
        pub position: Position,
        /// What the acknowledgement stands for.
        pub acknowledged: AckKind,
        /// That record had been appended before: this was a retry.
        pub duplicate: bool,
    }
}

layout! {
    /// One PUBLISH was refused, all of it.
    pub struct PublishRefused<'a> {
        /// The publisher.
        pub publisher: u32,
        /// The partition.
        pub partition: u32,
        /// The publisher's number of its first record.
        pub producer_seq: u64,
        /// How many records it had.
        pub count: u32,
        /// Why.
        pub refusal: Refusal<'a>,
    }
}
