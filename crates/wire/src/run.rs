//! Message RUN, and the bytes that precede the frames of RUN and PUBLISH.
//!
//! The frames are not checked here. The code that reads the frames checks them at the same time
//! (`topic::CheckedBatch`).

use dunlin_frame::{BATCH_HEADER_BYTES, BatchHeader};

use crate::header::{HEADER_BYTES, MessageHeader, MessageKind};
use crate::publish::PublishHeader;

/// Number of bytes before the frames of RUN and PUBLISH.
pub const RUN_HEAD_BYTES: usize = HEADER_BYTES + BATCH_HEADER_BYTES;

/// Message RUN: a batch of records of one channel. The header's field `topic_id` contains the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The channel, and the sequence numbers of the records.
    pub header: BatchHeader,
    /// The frames, which were not checked.
    pub frames: &'a [u8],
}

/// Encodes a RUN message, which carries a [`Batch`], up to its frames. `header.bytes` bytes of frames must follow.
#[inline]
pub fn batch_head(header: &BatchHeader) -> [u8; RUN_HEAD_BYTES] {
    head(MessageKind::Batch, 0, header.bytes, header.to_bytes())
}

/// Encodes a PUBLISH message up to its frames. `header.bytes` bytes of frames must follow.
#[inline]
pub fn publish_head(header: &PublishHeader, flags: u8) -> [u8; RUN_HEAD_BYTES] {
    head(MessageKind::Publish, flags, header.bytes, header.to_bytes())
}

#[inline]
fn head(kind: MessageKind, flags: u8, bytes: u32, header: [u8; BATCH_HEADER_BYTES]) -> [u8; RUN_HEAD_BYTES] {
    let mut out = [0; RUN_HEAD_BYTES];
    let first = MessageHeader { len: bytes + RUN_HEAD_BYTES as u32, kind: kind as u8, flags };
    out[..HEADER_BYTES].copy_from_slice(&first.to_bytes());
    out[HEADER_BYTES..].copy_from_slice(&header);
    out
}
