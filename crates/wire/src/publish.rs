//! Messages for publishing: publishers, records and acknowledgements.

use crate::code::Refusal;
use crate::error::WireError;
use crate::header::MessageKind;
use crate::layout::{Fields, Layout, choice, layout};
use crate::subscribe::Position;

/// PUBLISH flag: the publisher waits for the acknowledgement.
pub const FLAG_ACK: u8 = 1 << 0;
/// PUBLISH flag: the publisher wants no acknowledgement; only refusals are sent.
pub const FLAG_QUIET: u8 = 1 << 1;
/// PUBLISH flag: the records are appended only if `expect_seq` is the log's last sequence number.
pub const FLAG_EXPECT: u8 = 1 << 2;
/// The producer id of publishers without a name, whose records are not deduplicated.
pub const NO_PRODUCER: u64 = 0;
/// Producer epoch of a publisher with [`NO_PRODUCER`] that publishes nothing. A node opens such a publisher to report
/// to a topic's owner that publishers are connected to the node. The report is valid until the node closes this
/// publisher.
pub const PRESENT: u32 = u32::MAX;

layout! {
    /// Message OPEN_PUBLISHER: opens a publisher of a topic.
    ///
    /// If the client knows the topic's literal prefix, it may send PUBLISH directly after OPEN_PUBLISHER.
    pub struct OpenPublisher<'a> {
        /// The number that the client chose for the publisher. No open publisher of this connection may have the same
        /// number.
        pub publisher: u32,
        /// The producer's id, which stays the same over connections and restarts; [`NO_PRODUCER`] for none.
        pub producer: u64,
        /// The producer's epoch. Instances of the producer with a lower epoch can no longer publish.
        pub producer_epoch: u32,
        /// A subject that a single topic owns, or the topic's exact pattern.
        pub subject: &'a str,
    }
}

layout! {
    /// Message EXPECT_TOPIC: the records that a topic must have so that a publisher may continue. Since version 4.
    ///
    /// A client sends EXPECT_TOPIC before it opens a publisher again with an OPEN_PUBLISHER that has the same number. A
    /// node that forwards a batch to the owner sends EXPECT_TOPIC before the PUBLISH. In this case, the publisher is
    /// already open.
    pub struct ExpectTopic<'a> {
        /// The number that the client chose for the publisher.
        pub publisher: u32,
        /// Whether the node may create a missing topic with the node's default configuration.
        pub create: bool,
        /// The last acknowledged record of each partition. If the topic keeps a state and has lost one of these
        /// records, the publisher is refused with `STATE_LOST`.
        pub acknowledged: crate::list::MessageList<'a, LastAcknowledged>,
    }
}

layout! {
    /// The last record in a partition for which a publisher has received an acknowledgement.
    pub struct LastAcknowledged {
        /// The partition's number.
        pub partition: u16,
        /// The record's position.
        pub position: Position,
    }
}

layout! {
    /// Message PUBLISHER_TOPIC: properties of the topic of a publisher that is opened again.
    pub struct PublisherTopic {
        /// The publisher's number.
        pub publisher: u32,
        /// Whether the node creates this topic automatically.
        pub created_automatically: bool,
        /// Whether the topic keeps a state.
        pub keeps_state: bool,
    }
}

layout! {
    /// Message PUBLISHER_OPENED: confirms a new publisher, with its topic's name, partitions and limits.
    pub struct PublisherOpened<'a> {
        /// The publisher's number.
        pub publisher: u32,
        /// The topic's number of partitions.
        pub partitions: u16,
        /// Largest record of the topic, with metadata and padding, bytes.
        pub record_bytes_max: u32,
        /// The topic's name.
        pub topic: &'a str,
        /// The literal start of the topic's pattern. A record's subject consists of this prefix and the record's tail.
        pub subject_prefix: &'a str,
        /// The last sequence number of this producer in each partition; empty if the topic does not know the producer.
        pub last_seqs: crate::list::MessageList<'a, u64>,
    }
}

layout! {
    /// Message PUBLISHER_REFUSED: a publisher was refused. The node drops the publisher's records until the publisher
    /// is opened again.
    pub struct PublisherRefused<'a> {
        /// The publisher's number.
        pub publisher: u32,
        /// The reason for the refusal.
        pub refusal: Refusal<'a>,
    }
}

/// The header of message PUBLISH, before its frames.
///
/// ```text
///  0           4           8            16             24      28      32
///  +-----------+-----------+------------+--------------+-------+-------+----------
///  | publisher | partition | expect_seq | producer_seq | count | bytes | frames …
///  | u32       | u32       | u64        | u64          | u32   | u32   |
///  +-----------+-----------+------------+--------------+-------+-------+----------
/// ```
///
/// The header of a PUBLISH has the layout of a batch header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PublishHeader {
    /// The publisher's number.
    pub publisher: u32,
    /// The partition. A producer's sequence numbers count separately in each partition.
    pub partition: u32,
    /// With [`FLAG_EXPECT`], the log's expected last sequence number; otherwise 0.
    pub expect_seq: u64,
    /// The producer's sequence number of the first record, counted from 1. The numbers of the other records follow
    /// without gaps.
    pub producer_seq: u64,
    /// Number of records. Either all or none are appended.
    pub count: u32,
    /// Number of bytes of the frames.
    pub bytes: u32,
}

impl PublishHeader {
    /// The producer's sequence number of the last record.
    #[inline]
    pub fn last_producer_seq(&self) -> u64 {
        self.producer_seq + u64::from(self.count) - 1
    }

    /// Reads the header of an incomplete PUBLISH, so that a node can refuse it early. `None` for other or invalid
    /// messages.
    pub fn parse_incomplete(message: &[u8]) -> Option<PublishHeader> {
        let head = crate::MessageHeader::parse(message).ok()??;
        let batch = dunlin_frame::BatchHeader::parse(message.get(crate::HEADER_BYTES..)?).ok()?;
        let is_valid = head.kind == MessageKind::Publish as u8 && batch.count > 0 && batch.first_seq > 0;
        let end = batch.first_seq.checked_add(u64::from(batch.count));
        (is_valid && end.is_some()).then_some(PublishHeader {
            publisher: batch.topic_id,
            partition: batch.epoch,
            expect_seq: batch.prev_seq,
            producer_seq: batch.first_seq,
            count: batch.count,
            bytes: batch.bytes,
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
        if header.bytes as usize != fields.rest.len() {
            return Err(fields.invalid_value("byte count of frames"));
        }
        Ok(header)
    }

    pub(crate) fn to_bytes(self) -> [u8; dunlin_frame::BATCH_HEADER_BYTES] {
        // PUBLISH uses the layout of a batch header, but four fields have another meaning.
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

/// Message PUBLISH: records to append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Flags: [`FLAG_ACK`], [`FLAG_QUIET`] and [`FLAG_EXPECT`].
    pub flags: u8,
    /// The publisher, partition and number of records.
    pub header: PublishHeader,
    /// The frames, which were not checked. The append time in each frame is 0.
    pub frames: &'a [u8],
}

choice! {
    /// The acknowledgement level that published records have reached: in memory, written, synced or replicated.
    pub enum AckKind {
        /// The owner has the record in memory.
        Memory = 0,
        /// The owner has written the record to the operating system, which may not have stored it on the disk yet.
        Written = 1,
        /// The owner's disk has confirmed the record.
        Synced = 2,
        /// A majority of replicas have the record.
        Quorum = 3,
    }
}

layout! {
    /// Message PUBLISHED: acknowledges all records of a publisher in one partition up to the record `through`, except
    /// the records of refused batches.
    pub struct Published {
        /// The publisher's number.
        pub publisher: u32,
        /// The partition's number.
        pub partition: u32,
        /// The producer's sequence number of the last acknowledged record.
        pub through: u64,
        /// The position of the last acknowledged record.
        pub position: Position,
        /// The level of the acknowledgement.
        pub acknowledged: AckKind,
        /// Whether the last acknowledged record was a retry of a record that had been appended before.
        pub duplicate: bool,
    }
}

layout! {
    /// Message PUBLISH_REFUSED: all records of one PUBLISH were refused.
    pub struct PublishRefused<'a> {
        /// The publisher's number.
        pub publisher: u32,
        /// The partition's number.
        pub partition: u32,
        /// The producer's sequence number of the first record in the PUBLISH.
        pub producer_seq: u64,
        /// Number of the batch's records.
        pub count: u32,
        /// The reason for the refusal.
        pub refusal: Refusal<'a>,
    }
}
