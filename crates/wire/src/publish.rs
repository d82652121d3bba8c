//! Defines the messages for publishing, which concern publishers, records and acknowledgements.

use crate::code::Refusal;
use crate::error::WireError;
use crate::header::MessageKind;
use crate::layout::{Fields, Layout, choice, layout};
use crate::subscribe::Position;

/// Flag in a PUBLISH message: the publisher waits for the acknowledgement.
pub const FLAG_ACK: u8 = 1 << 0;
/// Flag in a PUBLISH message: the publisher needs no acknowledgement, so the node reports only refusals.
pub const FLAG_QUIET: u8 = 1 << 1;
/// Flag in a PUBLISH message: the records are appended only if the last sequence number in the log is `expect_seq`.
pub const FLAG_EXPECT: u8 = 1 << 2;
/// The producer id of a publisher that is not a producer. If such a publisher repeats a record, the record is appended
/// again.
pub const NO_PRODUCER: u64 = 0;
/// The producer epoch of a publisher that publishes nothing and has the id [`NO_PRODUCER`]. A node opens such a
/// publisher at a topic's owner to report that publishers of the topic are connected to the node. The report applies
/// until the node closes this publisher.
pub const PRESENT: u32 = u32::MAX;

layout! {
    /// Message OPEN_PUBLISHER: opens a publisher of a topic.
    ///
    /// A client that knows the literal prefix of the topic's pattern may send PUBLISH directly after OPEN_PUBLISHER,
    /// without waiting for the reply.
    pub struct OpenPublisher<'a> {
        /// The number that the client has chosen for the publisher. No open publisher of the same connection may have
        /// this number.
        pub publisher: u32,
        /// The id of the producer, which stays the same when the producer reconnects or restarts; [`NO_PRODUCER`] for
        /// none.
        pub producer: u64,
        /// The producer's epoch. It fences instances of the same producer that have a lower epoch: they can no longer
        /// publish.
        pub producer_epoch: u32,
        /// A subject that belongs to one topic, or the exact pattern of the topic.
        pub subject: &'a str,
    }
}

layout! {
    /// Message EXPECT_TOPIC: states which records a topic must have so that a publisher may continue. Since version 4
    /// of the protocol.
    ///
    /// Before a client opens a publisher again, it sends EXPECT_TOPIC with the publisher's number in the following
    /// OPEN_PUBLISHER. A node that forwards a batch to the owner sends EXPECT_TOPIC for an open publisher, before
    /// PUBLISH.
    pub struct ExpectTopic<'a> {
        /// The number that the client has chosen for the publisher.
        pub publisher: u32,
        /// Whether the node may create the topic with its default configuration if the topic does not exist.
        pub create: bool,
        /// The last acknowledged record in each partition. If the topic keeps a state and no longer has one of these
        /// records, the publisher is refused with `STATE_LOST`.
        pub acknowledged: crate::list::MessageList<'a, LastAcknowledged>,
    }
}

layout! {
    /// The last record in a partition that was acknowledged to a publisher.
    pub struct LastAcknowledged {
        /// The partition's number.
        pub partition: u16,
        /// The record's position.
        pub position: Position,
    }
}

layout! {
    /// Message PUBLISHER_TOPIC: states properties of the topic of a publisher that is opened again.
    pub struct PublisherTopic {
        /// The publisher's number.
        pub publisher: u32,
        /// Whether the node creates such a topic automatically.
        pub created_automatically: bool,
        /// Whether the topic keeps a state.
        pub keeps_state: bool,
    }
}

layout! {
    /// Message PUBLISHER_OPENED: confirms a new publisher, and describes its topic.
    pub struct PublisherOpened<'a> {
        /// The publisher's number.
        pub publisher: u32,
        /// Number of partitions of the topic.
        pub partitions: u16,
        /// Maximum size of a record in the topic, with metadata and padding, bytes.
        pub record_bytes_max: u32,
        /// The topic's name.
        pub topic: &'a str,
        /// The literal part at the start of the topic's pattern. The subject of a record is this prefix followed by the
        /// record's subject tail.
        pub subject_prefix: &'a str,
        /// The last sequence number that the topic has from this producer, for each partition; empty if the topic does
        /// not know the producer.
        pub last_seqs: crate::list::MessageList<'a, u64>,
    }
}

layout! {
    /// Message PUBLISHER_REFUSED: reports that a publisher was refused. The node drops the publisher's records until
    /// the publisher is opened again.
    pub struct PublisherRefused<'a> {
        /// The publisher's number.
        pub publisher: u32,
        /// The reason why the publisher was refused.
        pub refusal: Refusal<'a>,
    }
}

/// The fields of message PUBLISH before its frames:
///
/// ```text
///  0           4           8            16             24      28      32
///  +-----------+-----------+------------+--------------+-------+-------+----------
///  | publisher | partition | expect_seq | producer_seq | count | bytes | frames …
///  | u32       | u32       | u64        | u64          | u32   | u32   |
///  +-----------+-----------+------------+--------------+-------+-------+----------
/// ```
///
/// They have the same layout as a batch header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PublishHeader {
    /// The publisher's number.
    pub publisher: u32,
    /// The partition. A producer has separate sequence numbers in each partition.
    pub partition: u32,
    /// With [`FLAG_EXPECT`], the last sequence number that the log must have; otherwise 0.
    pub expect_seq: u64,
    /// The sequence number that the producer gave to the first record, from 1 on. The next records have the following
    /// numbers, without gaps.
    pub producer_seq: u64,
    /// Number of records. Either all of them are appended or none.
    pub count: u32,
    /// Size of the frames, bytes.
    pub bytes: u32,
}

impl PublishHeader {
    /// The sequence number that the producer gave to the last record.
    #[inline]
    pub fn last_producer_seq(&self) -> u64 {
        self.producer_seq + u64::from(self.count) - 1
    }

    /// Decodes these fields of a PUBLISH message that is not complete yet, so that a node can refuse the message early.
    /// `None` if the bytes are not the start of a valid PUBLISH message.
    pub fn parse_incomplete(message: &[u8]) -> Option<PublishHeader> {
        let head = crate::MessageHeader::parse(message).ok()??;
        let kind = MessageKind::Publish;
        let rest = message.get(crate::HEADER_BYTES..).filter(|_| head.kind == kind as u8)?;
        let mut fields = Fields { kind, rest, version: crate::VERSION };
        let header = PublishHeader::read(&mut fields, head.flags).ok()?;
        let bytes = crate::RUN_HEAD_BYTES + header.bytes as usize;
        (bytes == head.len as usize).then_some(header)
    }

    pub(crate) fn parse(fields: &mut Fields<'_>, flags: u8) -> Result<PublishHeader, WireError> {
        let header = PublishHeader::read(fields, flags)?;
        if header.bytes as usize != fields.rest.len() {
            return Err(fields.invalid_value("byte count of frames"));
        }
        Ok(header)
    }

    fn read(fields: &mut Fields<'_>, flags: u8) -> Result<PublishHeader, WireError> {
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
            return Err(WireError::Flags { kind: MessageKind::Publish, flags });
        }
        if header.count == 0 || header.producer_seq == 0 {
            return Err(fields.invalid_value("count or producer sequence of zero"));
        }
        if header.producer_seq.checked_add(u64::from(header.count)).is_none() {
            return Err(fields.invalid_value("producer sequence"));
        }
        if flags & FLAG_EXPECT == 0 && header.expect_seq != 0 {
            return Err(fields.invalid_value("expected sequence without its flag"));
        }
        Ok(header)
    }

    pub(crate) fn to_bytes(self) -> [u8; dunlin_frame::BATCH_HEADER_BYTES] {
        // PUBLISH has the layout of a batch header, but four of its fields have another meaning.
        dunlin_frame::BatchHeader {
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

/// Message PUBLISH: contains records to append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Flags: [`FLAG_ACK`], [`FLAG_QUIET`] and [`FLAG_EXPECT`].
    pub flags: u8,
    /// The fields before the frames.
    pub header: PublishHeader,
    /// The frames, which are not checked yet. Their append time is 0.
    pub frames: &'a [u8],
}

choice! {
    /// The acknowledgement level that records have reached: in memory, written, synced or replicated.
    pub enum AckKind {
        /// The owner has the records in memory.
        Memory = 0,
        /// The owner has written the records to its operating system, which may not have stored them on the disk yet.
        Written = 1,
        /// The owner has synced the records to its disk.
        Synced = 2,
        /// A majority of the replicas have the records.
        Quorum = 3,
    }
}

layout! {
    /// Message PUBLISHED: acknowledges all records that a publisher has sent to one partition, up to the record
    /// `through`. Records in refused batches are excluded.
    pub struct Published {
        /// The publisher's number.
        pub publisher: u32,
        /// The partition's number.
        pub partition: u32,
        /// The sequence number that the producer gave to the last acknowledged record.
        pub through: u64,
        /// The position of the last acknowledged record.
        pub position: Position,
        /// The acknowledgement level that the records have reached.
        pub acknowledged: AckKind,
        /// Whether the last acknowledged record was already in the log, because the producer had sent it before.
        pub duplicate: bool,
    }
}

layout! {
    /// Message PUBLISH_REFUSED: reports that all records of one PUBLISH message were refused.
    pub struct PublishRefused<'a> {
        /// The publisher's number.
        pub publisher: u32,
        /// The partition's number.
        pub partition: u32,
        /// The sequence number that the producer gave to the first of these records.
        pub producer_seq: u64,
        /// Number of refused records.
        pub count: u32,
        /// The reason why the records were refused.
        pub refusal: Refusal<'a>,
    }
}
