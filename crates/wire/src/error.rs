use dunlin_frame::FrameError;
use thiserror::Error;

use crate::header::MessageKind;

/// The reason why received bytes violate the protocol. The connection must then be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The other side's first bytes are not a Dunlin preamble.
    #[error("the peer does not use Dunlin's protocol: its first bytes are {0:02x?}")]
    Magic([u8; 8]),
    /// In the other side's preamble, the lowest version is above the highest one.
    #[error("the peer offers the protocol versions {min} to {max}, which is an empty range")]
    VersionRange {
        /// The lowest version in the preamble.
        min: u8,
        /// The highest version in the preamble.
        max: u8,
    },
    /// A message's header states a length that is impossible.
    #[error("message length {0} is invalid: it is not a multiple of 8, or is less than a header's length")]
    Length(u32),
    /// A message is larger than messages of its kind may be.
    #[error("{kind:?} of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge {
        /// The message's kind.
        kind: MessageKind,
        /// The message's length, bytes.
        bytes: usize,
        /// The largest allowed length of messages of this kind, bytes.
        bytes_max: usize,
    },
    /// The negotiated protocol version has no such kind of message, or the other side may not send it.
    #[error("message kind {0} is unknown")]
    UnknownKind(u8),
    /// The reserved bytes of a message's header are not zero.
    #[error("reserved bytes of the message header are {0:#06x}, not zero")]
    Reserved(u16),
    /// A message has flags that the protocol does not define.
    #[error("{kind:?} has unknown flags {flags:#010b}")]
    Flags {
        /// The message's kind.
        kind: MessageKind,
        /// All flags of the message. At least one of them is unknown.
        flags: u8,
    },
    /// A message ends inside one of its fields.
    #[error("{kind:?} ends inside its fields: {missing} bytes are missing")]
    Short {
        /// The message's kind.
        kind: MessageKind,
        /// Number of missing bytes.
        missing: usize,
    },
    /// A message has bytes after its last field that are not padding.
    #[error("{kind:?} has {bytes} bytes after its last field")]
    Trailing {
        /// The message's kind.
        kind: MessageKind,
        /// Number of bytes after the last field.
        bytes: usize,
    },
    /// A field of a message has an invalid value.
    #[error("{kind:?} has an invalid {what}")]
    Value {
        /// The message's kind.
        kind: MessageKind,
        /// A description of the field.
        what: &'static str,
    },
    /// A message contains an invalid batch header or frame.
    #[error("{kind:?}: {error}")]
    Frame {
        /// The message's kind.
        kind: MessageKind,
        /// The error of the batch header or the frame.
        error: FrameError,
    },
    /// A message contains another number of frames than its header states.
    #[error("{kind:?} holds {found} records, but its header says {count}")]
    Count {
        /// The message's kind.
        kind: MessageKind,
        /// Number of frames that were found.
        found: u32,
        /// Number of frames that the header states.
        count: u32,
    },
}
