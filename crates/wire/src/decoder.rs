//! Splits a stream of bytes into messages and decodes them.
//!
//! The caller keeps the bytes. The decoder returns the first message in them, and the length of this message. The
//! decoder checks a message's header as soon as the eight bytes of the header are present, even if the rest of the
//! message is missing.

use crate::error::WireError;
use crate::from_client::FromClient;
use crate::from_node::FromNode;
use crate::header::{HEADER_BYTES, MessageHeader, MessageKind};
use crate::layout::Fields;
use crate::limits::DecoderLimits;
use crate::version::VERSION;

/// The result of decoding the first message in some bytes: the message, or how many bytes are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeOutcome<M> {
    /// The message, and its length in bytes.
    Message(M, usize),
    /// The message is not complete: at least this many bytes are needed, counted from its start.
    Need(usize),
}

/// Decodes the messages that arrive in one direction of a connection, after the preamble.
#[derive(Debug, Clone, Copy)]
pub struct Decoder {
    limits: DecoderLimits,
    version: u8,
}

impl Decoder {
    /// Creates a decoder for the newest protocol version. Call [`set_version`](Decoder::set_version) when another
    /// version was negotiated.
    pub fn new(limits: DecoderLimits) -> Decoder {
        Decoder { limits, version: VERSION }
    }

    /// Sets the protocol version that was negotiated.
    pub fn set_version(&mut self, version: u8) {
        self.version = version;
    }

    /// The protocol version of the messages.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The decoder's limits.
    pub fn limits(&self) -> DecoderLimits {
        self.limits
    }

    /// Decodes the first message in `bytes`, which a client sent. The frames of a PUBLISH message are not checked.
    #[inline]
    pub fn next_from_client<'a>(&self, bytes: &'a [u8]) -> Result<DecodeOutcome<FromClient<'a>>, WireError> {
        let (header, mut fields) = match self.split(bytes, true)? {
            DecodeOutcome::Message(parts, _) => parts,
            DecodeOutcome::Need(bytes) => return Ok(DecodeOutcome::Need(bytes)),
        };
        let message = FromClient::read(&mut fields, header.flags)?;
        check_end(fields, header, matches!(fields.kind, MessageKind::Publish))?;
        let message = message.ok_or(WireError::UnknownKind(header.kind))?;
        Ok(DecodeOutcome::Message(message, header.len as usize))
    }

    /// Decodes the first message in `bytes`, which a node sent. The frames of a RUN message are not checked.
    #[inline]
    pub fn next_from_node<'a>(&self, bytes: &'a [u8]) -> Result<DecodeOutcome<FromNode<'a>>, WireError> {
        let (header, mut fields) = match self.split(bytes, false)? {
            DecodeOutcome::Message(parts, _) => parts,
            DecodeOutcome::Need(bytes) => return Ok(DecodeOutcome::Need(bytes)),
        };
        let message = FromNode::read(&mut fields)?;
        check_end(fields, header, false)?;
        let message = message.ok_or(WireError::UnknownKind(header.kind))?;
        Ok(DecodeOutcome::Message(message, header.len as usize))
    }

    /// Returns the header and the complete body of the first message in `bytes`.
    #[inline]
    fn split<'a>(
        &self,
        bytes: &'a [u8],
        from_client: bool,
    ) -> Result<DecodeOutcome<(MessageHeader, Fields<'a>)>, WireError> {
        let Some(header) = MessageHeader::parse(bytes)? else { return Ok(DecodeOutcome::Need(HEADER_BYTES)) };
        let kind = MessageKind::from_number(header.kind)
            .filter(|&kind| ((kind as u8) < 64) == from_client && kind.since() <= self.version)
            .ok_or(WireError::UnknownKind(header.kind))?;
        let len = header.len as usize;
        let bytes_max =
            if kind.carries_records() { self.limits.run_bytes_max } else { self.limits.control_bytes_max };
        if len > bytes_max {
            return Err(WireError::TooLarge { kind, bytes: len, bytes_max });
        }
        let Some(message) = bytes.get(..len) else { return Ok(DecodeOutcome::Need(len)) };
        let fields = Fields { kind, rest: &message[HEADER_BYTES..], version: self.version };
        Ok(DecodeOutcome::Message((header, fields), len))
    }
}

/// Checks that all flags are known, and that only padding follows the fields. HELLO, WELCOME and REFUSED may have
/// additional fields at the end, because the other side may be newer.
#[inline]
fn check_end(fields: Fields<'_>, header: MessageHeader, flags_known: bool) -> Result<(), WireError> {
    if header.flags != 0 && !flags_known {
        return Err(WireError::Flags { kind: fields.kind, flags: header.flags });
    }
    if fields.rest.is_empty()
        || matches!(fields.kind, MessageKind::Hello | MessageKind::Welcome | MessageKind::Refused)
    {
        return Ok(());
    }
    fields.end()
}
