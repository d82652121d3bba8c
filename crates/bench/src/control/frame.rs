//! The frames of suite `control`'s own protocol between its clients and the measured nodes. The clients use this
//! protocol for requests that ordinary clients cannot make.
//!
//! ```text
//!  frame = length of the rest in bytes u32, id u64, kind u8, body
//! ```
//! A response has the id of its request. Responses may arrive in another order than their requests were sent. Integers
//! are little-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Asks the node to propose a command to the cluster, without a retry. The request's body is the command; the
/// response's body is the command's result.
pub const COMMAND: u8 = 1;
/// Asks for the node's status. If the request's body is not empty, the node afterwards counts commits from zero.
pub const STATUS: u8 = 3;
/// Asks the node to take a snapshot.
pub const SNAPSHOT: u8 = 4;
/// Asks the node to confirm a read index with the leader, and to return how long this took, in ns.
pub const ROUND_TRIP: u8 = 7;
/// The kind of a successful response.
pub const DONE: u8 = 5;
/// The kind of a failed response. The body is the error as text.
pub const FAILED: u8 = 6;

const HEAD_BYTES: usize = 9;

/// A request or a response, between a client of the benchmark and a node: an id, a kind and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFrame {
    /// The id of the request. A response has the id of its request.
    pub id: u64,
    /// The kind of the frame: one of the constants of this module.
    pub kind: u8,
    /// The contents of the request or response, in bytes.
    pub body: Bytes,
}

/// Appends a frame to `out`.
pub fn push(out: &mut BytesMut, id: u64, kind: u8, body: &[u8]) {
    out.reserve(4 + HEAD_BYTES + body.len());
    out.put_u32_le((HEAD_BYTES + body.len()) as u32);
    out.put_u64_le(id);
    out.put_u8(kind);
    out.put_slice(body);
}

/// Removes the first frame from the buffer and returns it; `None` if the frame is still incomplete.
pub fn pull(buffer: &mut BytesMut) -> Option<RequestFrame> {
    let rest = u32::from_le_bytes(*buffer.first_chunk()?) as usize;
    if buffer.len() < 4 + rest {
        buffer.reserve(4 + rest - buffer.len());
        return None;
    }
    buffer.advance(4);
    let mut frame = buffer.split_to(rest).freeze();
    let (id, kind) = (frame.get_u64_le(), frame.get_u8());
    Some(RequestFrame { id, kind, body: frame })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_request_frame_is_not_read() {
        let mut all = BytesMut::new();
        push(&mut all, 7, COMMAND, b"one");
        push(&mut all, 8, DONE, b"");
        let mut received = BytesMut::new();
        let mut frames = Vec::new();
        for byte in all {
            received.put_u8(byte);
            frames.extend(pull(&mut received));
        }
        let body = Bytes::from_static(b"one");
        assert_eq!(frames[0], RequestFrame { id: 7, kind: COMMAND, body });
        assert_eq!(frames[1], RequestFrame { id: 8, kind: DONE, body: Bytes::new() });
        assert!(received.is_empty());
    }
}
