//! Defines the message RUN, and encodes the part of RUN and PUBLISH before the frames.
//!
//! The frames are not checked here: `topic::CheckedBatch` checks them while it reads them.

use dunlin_frame::{BATCH_HEADER_BYTES, BatchHeader};

use crate::header::{HEADER_BYTES, MessageHeader, MessageKind};
use crate::publish::PublishHeader;

/// Size of the part of RUN and PUBLISH before the frames, bytes.
pub const RUN_HEAD_BYTES: usize = HEADER_BYTES + BATCH_HEADER_BYTES;

/// Message RUN: contains a batch of records of one channel. The channel's number is in the header's field `topic_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The batch header, with the channel and the sequence numbers of the records.
    pub header: BatchHeader,
    /// The frames, which are not checked yet.
    pub frames: &'a [u8],
}

/// Encodes the part of a RUN message before the frames. The caller must append frames of `header.bytes` bytes.
#[inline]
pub fn batch_head(header: &BatchHeader) -> [u8; RUN_HEAD_BYTES] {
    head(MessageKind::Batch, 0, header.bytes, header.to_bytes())
}

/// Encodes the part of a PUBLISH message before the frames. The caller must append frames of `header.bytes` bytes.
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
