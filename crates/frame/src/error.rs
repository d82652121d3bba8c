use thiserror::Error;

/// The reason why bytes are not a valid frame or batch header, or why a record's fields do not fit into a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The input ends before the end of the frame.
    #[error("the frame needs {need} bytes, but only {have} are available")]
    Truncated {
        /// Size that the input needs at least, bytes.
        need: usize,
        /// Size of the input, bytes.
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
    /// The frame's `len` field is smaller than its head and meta together.
    #[error("frame length {len} is less than the {head} bytes of its header and metadata")]
    ShortLength {
        /// The value of the `len` field.
        len: usize,
        /// Size of the head and the meta, bytes.
        head: usize,
    },
    /// The frame's kind is not one that this version knows.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// The frame has a flag that is unknown to this version, or that is valid only in a node's memory.
    #[error("frame flags {0:#010b} are not allowed here")]
    ForbiddenFlags(u8),
    /// The fields in the frame's meta are not the ones for which flags are set.
    #[error("the frame's metadata is malformed at field {0}")]
    Meta(&'static str),
    /// A field of a record is longer than the frame layout allows.
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
