use thiserror::Error;

/// Why bytes are not a frame, or fields do not fit into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Fewer bytes than the frame says it has.
    #[error("frame needs {need} bytes, {have} are there")]
    Truncated {
        /// Bytes the frame takes.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// A frame larger than the limit.
    #[error("frame of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge {
        /// Size of the frame.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The length field is smaller than the header and the meta it announces.
    #[error("frame length {len} is shorter than its header and meta of {head}")]
    ShortLength {
        /// The length field.
        len: usize,
        /// What header and meta take.
        head: usize,
    },
    /// The kind byte is none this version knows.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// A flag that must not travel, or that this version does not know.
    #[error("frame flags {0:#010b} are not allowed here")]
    ForbiddenFlags(u8),
    /// The meta does not hold the fields its flags announce.
    #[error("frame meta is malformed at its {0} field")]
    Meta(&'static str),
    /// A field is too long for the layout.
    #[error("{field} of {bytes} bytes is over the limit of {bytes_max}")]
    FieldTooLong {
        /// Which field.
        field: &'static str,
        /// Its size.
        bytes: usize,
        /// What the layout can hold.
        bytes_max: usize,
    },
    /// The padding after a frame is not zero.
    #[error("frame padding is not zero")]
    Padding,
    /// A run header that contradicts itself.
    #[error("run header: {0}")]
    Run(&'static str),
}
