use thiserror::Error;

/// The reason why bytes are not a valid frame, or why a record's fields do not fit into a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The input ends before the frame does.
    #[error("the frame needs {need} bytes, but only {have} are available")]
    Truncated {
        /// Bytes that the frame takes.
        need: usize,
        /// Bytes available.
        have: usize,
    },
    /// The frame is larger than the limit.
    #[error("frame of {bytes} bytes exceeds the limit of {bytes_max} bytes")]
    TooLarge {
        /// Size of the frame.
        bytes: usize,
        /// The largest size that is allowed, bytes.
        bytes_max: usize,
    },
    /// The length field is smaller than the frame's header and meta together.
    #[error("frame length {len} is less than the {head} bytes of its header and metadata")]
    ShortLength {
        /// The length field.
        len: usize,
        /// Bytes of header and meta.
        head: usize,
    },
    /// The kind byte is unknown to this version.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// A flag is unknown to this version, or is valid only in a node's memory.
    #[error("frame flags {0:#010b} are not allowed here")]
    ForbiddenFlags(u8),
    /// The meta does not hold the fields that the frame's flags announce.
    #[error("the frame's metadata is malformed at field {0}")]
    Meta(&'static str),
    /// A field is too long for the layout.
    #[error("{field} of {bytes} bytes exceeds the limit of {bytes_max} bytes")]
    FieldTooLong {
        /// Name of the field.
        field: &'static str,
        /// The field's size.
        bytes: usize,
        /// The largest size that the layout allows, bytes.
        bytes_max: usize,
    },
    /// The padding after a frame is not zero.
    #[error("frame padding is not zero")]
    Padding,
    /// The fields of a batch header contradict each other.
    #[error("invalid batch header: {0}")]
    Batch(&'static str),
}
