//! A buffer of outgoing gRPC messages. A header of five bytes precedes each message.
//!
//! ```text
//!  0      1          5
//!  +------+----------+---------+
//!  | 0    | length   | message |      0: not compressed
//!  | u8   | u32 BE   |         |
//!  +------+----------+---------+
//! ```

use bytes::{Buf, Bytes};
use prost::Message;

pub(super) const HEAD_BYTES: usize = 5;
/// Maximum number of bytes before an inner message: one byte for the tag of a field whose number is below 16, and five
/// for the length.
const FIELD_HEAD_BYTES_MAX: usize = 6;

#[derive(Debug, Default)]
pub(super) struct OutgoingMessages {
    bytes: Vec<u8>,
    /// Capacity that is reserved for the first message, bytes.
    capacity: usize,
    /// Number of unused bytes at the start of the buffer, which are not sent.
    skip: usize,
}

impl OutgoingMessages {
    pub(super) fn with_capacity(capacity: usize) -> OutgoingMessages {
        OutgoingMessages { capacity, ..OutgoingMessages::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn push(&mut self, message: &impl Message) {
        let bytes = message.encoded_len();
        self.bytes.reserve(self.capacity.max(HEAD_BYTES + bytes));
        self.capacity = 0;
        self.bytes.extend_from_slice(&head(bytes));
        message.encode_raw(&mut self.bytes);
    }

    /// Starts a message with a single field that contains an inner message of unknown length. All bytes that are
    /// appended before [`close`](OutgoingMessages::close) belong to the inner message.
    pub(super) fn open(&mut self) -> OpenMessage {
        self.bytes.reserve(std::mem::take(&mut self.capacity));
        let start = self.bytes.len();
        self.bytes.resize(start + HEAD_BYTES + FIELD_HEAD_BYTES_MAX, 0);
        OpenMessage { start }
    }

    /// The buffer, to which the caller may append.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the message; `tag` is the tag of the message's only field.
    pub(super) fn close(&mut self, open: OpenMessage, tag: u8) {
        let content = open.start + HEAD_BYTES + FIELD_HEAD_BYTES_MAX;
        let content_bytes = self.bytes.len() - content;
        let mut field = Vec::with_capacity(FIELD_HEAD_BYTES_MAX);
        field.push(tag);
        put_varint(&mut field, content_bytes as u64);
        let unused = FIELD_HEAD_BYTES_MAX - field.len();
        let at = open.start + unused;
        self.bytes[at..at + HEAD_BYTES].copy_from_slice(&head(field.len() + content_bytes));
        self.bytes[at + HEAD_BYTES..content].copy_from_slice(&field);
        if open.start == 0 {
            self.skip = unused;
        } else {
            self.bytes.drain(open.start..at);
        }
    }

    pub(super) fn finish(self) -> Bytes {
        let mut bytes = Bytes::from(self.bytes);
        bytes.advance(self.skip);
        bytes
    }
}

/// An outgoing message that was started and not yet ended.
#[derive(Debug)]
#[must_use]
pub(super) struct OpenMessage {
    start: usize,
}

fn head(message_bytes: usize) -> [u8; HEAD_BYTES] {
    let [a, b, c, d] = u32::try_from(message_bytes).unwrap_or(u32::MAX).to_be_bytes();
    [0, a, b, c, d]
}

/// Appends a number as a protobuf varint.
#[inline(always)]
pub(super) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Number of bytes that [`put_varint`] appends.
#[inline(always)]
pub(super) fn varint_bytes(number: u64) -> usize {
    // A byte holds seven bits of the number. This computes the number of bits divided by 7, rounded up, without a
    // division.
    ((u64::BITS - (number | 1).leading_zeros()) as usize * 9 + 64) / 64
}
