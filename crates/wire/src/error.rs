use dunlin_frame::FrameError;
use thiserror::Error;

use crate::header::Kind;

/// Why bytes are not this protocol. The connection cannot go on after one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The first bytes are not a Dunlin preamble.
    #[error("the other side does not speak Dunlin's protocol: it began with {0:02x?}")]
    Magic([u8; 8]),
    /// A preamble whose lowest version is above its highest.
    #[error("preamble offers the empty range of versions {min} to {max}")]
    VersionRange {
        /// The lowest offered.
        min: u8,
        /// The highest offered.
        max: u8,
    },
    /// A length that no message can have.
    #[error("message length {0} is no multiple of 8, or shorter than a header")]
    Length(u32),
    /// A message over the limit for its kind.
    #[error("{kind:?} of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge {
        /// What it says it is.
        kind: Kind,
        /// What it says it has.
        bytes: usize,
        /// What is allowed.
        bytes_max: usize,
    },
    /// A kind this version does not know, or that never comes from this side.
    #[error("message kind {0} is not known here")]
    UnknownKind(u8),
    /// The reserved half-word of the header is not zero.
    #[error("reserved bytes of the message header are {0:#06x}, not zero")]
    Reserved(u16),
    /// Flags this version does not know.
    #[error("{kind:?} has unknown flags {flags:#010b}")]
    Flags {
        /// The message.
        kind: Kind,
        /// Its flags.
        flags: u8,
    },
    /// The body ends inside a field.
    #[error("{kind:?} ends inside its fields: {missing} bytes are missing")]
    Short {
        /// The message.
        kind: Kind,
        /// How many bytes the field still needs.
        missing: usize,
    },
    /// Bytes after the last field that are not padding.
    #[error("{kind:?} has {bytes} bytes after its last field")]
    Trailing {
        /// The message.
        kind: Kind,
        /// How many.
        bytes: usize,
    },
    /// A field holds a value that its layout does not allow.
    #[error("{kind:?} has an unsound {what}")]
    Value {
        /// The message.
        kind: Kind,
        /// What is wrong.
        what: &'static str,
    },
    /// A run header or a frame is not sound.
    #[error("{kind:?}: {error}")]
    Frame {
        /// The message.
        kind: Kind,
        /// What is wrong with them.
        error: FrameError,
    },
    /// The frames are more or fewer than announced.
    #[error("{kind:?} holds {found} records, its header says {count}")]
    Count {
        /// The message.
        kind: Kind,
        /// Frames found.
        found: u32,
        /// Frames announced.
        count: u32,
    },
}
