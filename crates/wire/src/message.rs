//! Writes the header and the padding of messages.

use crate::header::{HEADER_BYTES, MESSAGE_ALIGN, MessageHeader, MessageKind};

/// Reserves space for a message's header. Returns the position of the header, which [`finish`] needs.
pub(crate) fn start(out: &mut Vec<u8>, kind: MessageKind) -> usize {
    let at = out.len();
    out.extend_from_slice(&MessageHeader { len: 0, kind: kind as u8, flags: 0 }.to_bytes());
    debug_assert_eq!(out.len() - at, HEADER_BYTES);
    at
}

/// Pads the message that begins at `at`, and writes its length into its header.
pub(crate) fn finish(out: &mut Vec<u8>, at: usize) {
    let len = (out.len() - at).next_multiple_of(MESSAGE_ALIGN);
    out.resize(at + len, 0);
    out[at..at + 4].copy_from_slice(&(len as u32).to_le_bytes());
}
