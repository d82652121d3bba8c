//! Defines the messages for the states of state topics: options for following a state, snapshots, checksums, reports
//! whether publishers are connected, and resynchronization. They exist since version 2 of the protocol, except
//! [`PublisherStatus`].
//!
//! ```text
//!  SNAPSHOT
//!  0         8         12      16    24         32      40       48      56
//!  +---------+---------+-------+-----+----------+-------+--------+-------+---------+---------+
//!  | message | channel | epoch | seq | checksum | total | offset | bytes | bytes … | padding |
//!  | header  | u32     | u32   | u64 | u64      | u64   | u64    | u64   |         |         |
//!  +---------+---------+-------+-----+----------+-------+--------+-------+---------+---------+
//! ```

use crate::error::WireError;
use crate::header::{HEADER_BYTES, MESSAGE_ALIGN, MessageHeader, MessageKind};
use crate::layout::{Fields, Layout, layout};
use crate::subscribe::Position;

layout! {
    /// Message FOLLOW: sets options for following the states of topics. They apply to the next SUBSCRIBE with the same
    /// subscription number.
    pub struct Follow {
        /// The subscription's number.
        pub subscription: u32,
        /// Whether the subscription first receives the state of each log, instead of starting at the position in
        /// SUBSCRIBE. A log that RESUME names continues after its position in RESUME.
        pub start: bool,
        /// Whether the subscription receives the state again after it has lost records.
        pub on_gap: bool,
        /// Whether to conflate: each batch then has one record that merges all changes since the previous one. The node
        /// sends each batch after CREDIT has reported that the previous one is consumed.
        pub conflate: bool,
        /// For tests: makes the node withhold, once, each record whose sequence number is a multiple of this number; 0
        /// withholds none.
        pub test_loss_every: u32,
    }
}

layout! {
    /// Message RESYNC: requests a snapshot, or the records after a position, because the subscriber's state is wrong or
    /// incomplete. The node then assigns a new channel to the log with a LOG message.
    pub struct Resync {
        /// The channel's number.
        pub channel: u32,
        /// Whether to send a snapshot, because the subscriber's state is wrong.
        pub state: bool,
        /// If `state` is false, the position up to which the subscriber has all records. The node sends the records
        /// after it.
        pub after: Position,
    }
}

layout! {
    /// Message CHECKSUM: contains the checksum that a subscriber's state must have after the record at `position`.
    pub struct Checksum {
        /// The channel's number.
        pub channel: u32,
        /// The position of the last record in the state.
        pub position: Position,
        /// The sum of the hashes of all entries of the state, modulo 2⁶⁴.
        pub checksum: u64,
    }
}

layout! {
    /// Message PUBLISHERS: reports whether publishers of a log's topic are connected. Since version 5 of the protocol.
    /// The node sends it when the first publisher connects or the last one leaves, when a channel begins while no
    /// publisher is connected, and when a channel resumes.
    pub struct PublisherStatus {
        /// The channel's number.
        pub channel: u32,
        /// Whether at least one publisher is connected.
        pub connected: bool,
        /// Time since which this has been so, ns since the Unix epoch.
        pub since_ns: u64,
        /// Append time of the newest record, ns since the Unix epoch; `None` if there is no record.
        pub last_append_ns: Option<u64>,
    }
}

/// Size of a [`SnapshotPart`] message before the bytes of the state, bytes.
pub const SNAPSHOT_HEAD_BYTES: usize = HEADER_BYTES + 48;

/// Message SNAPSHOT: contains a part of a snapshot. After the last part, the subscriber has the state at `position`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPart<'a> {
    /// The channel's number.
    pub channel: u32,
    /// The position of the last record in the state.
    pub position: Position,
    /// The checksum of the whole state.
    pub checksum: u64,
    /// Size of the whole state, bytes.
    pub total: u64,
    /// Offset of this part in the state, bytes. The part with offset 0 begins a new snapshot.
    pub offset: u64,
    /// The bytes of this part.
    pub bytes: &'a [u8],
}

impl<'a> SnapshotPart<'a> {
    /// Encodes the part of the message before the bytes of the state. The caller must append these bytes, and zeros up
    /// to a multiple of 8.
    pub fn head(&self) -> [u8; SNAPSHOT_HEAD_BYTES] {
        let mut out = Vec::with_capacity(SNAPSHOT_HEAD_BYTES);
        let len = (SNAPSHOT_HEAD_BYTES + self.bytes.len()).next_multiple_of(MESSAGE_ALIGN) as u32;
        out.extend_from_slice(&MessageHeader { len, kind: MessageKind::Snapshot as u8, flags: 0 }.to_bytes());
        self.channel.write(&mut out);
        self.position.write(&mut out);
        for number in [self.checksum, self.total, self.offset, self.bytes.len() as u64] {
            number.write(&mut out);
        }
        let mut head = [0; SNAPSHOT_HEAD_BYTES];
        head.copy_from_slice(&out);
        head
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head());
        out.extend_from_slice(self.bytes);
        out.resize(out.len().next_multiple_of(MESSAGE_ALIGN), 0);
    }

    pub(crate) fn read(fields: &mut Fields<'a>) -> Result<SnapshotPart<'a>, WireError> {
        let channel = Layout::read(fields)?;
        let position = Layout::read(fields)?;
        let (checksum, total, offset) = (u64::read(fields)?, u64::read(fields)?, u64::read(fields)?);
        let len = u64::read(fields)?;
        let end = offset.checked_add(len).filter(|&end| end <= total);
        if end.is_none() || (len == 0 && total > 0) {
            return Err(fields.invalid_value("part of a state"));
        }
        let bytes = fields.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        Ok(SnapshotPart { channel, position, checksum, total, offset, bytes })
    }
}
