use dunlin_frame::FrameError;
use thiserror::Error;

use crate::header::MessageKind;

/// The reason why received bytes violate the protocol. The connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The first bytes are not a Dunlin preamble.
    #[error("the peer does not use Dunlin's protocol: its first bytes are {0:02x?}")]
    Magic([u8; 8]),
    /// The preamble's lowest version is above its highest version.
    #[error("the peer offers the protocol versions {min} to {max}, which is an empty range")]
    VersionRange {
        /// The lowest version that the peer offers.
        min: u8,
        /// The highest version that the peer offers.
        max: u8,
    },
    /// A header states an impossible message length.
    #[error("message length {0} is invalid: it is not a multiple of 8, or is less than a header's length")]
    Length(u32),
    /// A message is larger than the limit for its kind.
    #[error("{kind:?} of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge {
        /// The message's kind.
        kind: MessageKind,
        /// The message's length.
        bytes: usize,
        /// The largest allowed length for this kind.
        bytes_max: usize,
    },
    /// The protocol version does not know this kind of message, or the sending side must not send it.
    #[error("message kind {0} is unknown")]
    UnknownKind(u8),
    /// The reserved bytes of the header are not zero.
    #[error("reserved bytes of the message header are {0:#06x}, not zero")]
    Reserved(u16),
    /// The message has flags that this protocol version does not know.
    #[error("{kind:?} has unknown flags {flags:#010b}")]
    Flags {
        /// The message's kind.
        kind: MessageKind,
        /// The flags, of which at least one is unknown.
        flags: u8,
    },
    /// The body ends inside a field.
    #[error("{kind:?} ends inside its fields: {missing} bytes are missing")]
    Short {
        /// The message's kind.
        kind: MessageKind,
        /// Number of missing bytes.
        missing: usize,
    },
    /// The last field is followed by bytes that are not padding.
    #[error("{kind:?} has {bytes} bytes after its last field")]
    Trailing {
        /// The message's kind.
        kind: MessageKind,
        /// Number of bytes after the last field.
        bytes: usize,
    },
    /// A field has an invalid value.
    #[error("{kind:?} has an invalid {what}")]
    Value {
        /// The message's kind.
        kind: MessageKind,
        /// The invalid field.
        what: &'static str,
    },
    /// A batch header or a frame is invalid.
    #[error("{kind:?}: {error}")]
    Frame {
        /// The message's kind.
        kind: MessageKind,
        /// The error in the batch header or the frame.
        error: FrameError,
    },
    /// The number of frames differs from the number that the header states.
    #[error("{kind:?} holds {found} records, but its header says {count}")]
    Count {
        /// The message's kind.
        kind: MessageKind,
        /// Number of frames in the message.
        found: u32,
        /// Number of frames that the header states.
        count: u32,
    },
}
