//! The limits of decoders.

/// The sizes of the largest messages that a decoder accepts. A larger message is refused as soon as its header is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderLimits {
    /// Largest message with records, bytes, header included.
    pub run_bytes_max: usize,
    /// Largest other message, bytes, header included.
    pub control_bytes_max: usize,
}

impl Default for DecoderLimits {
    fn default() -> DecoderLimits {
        DecoderLimits { run_bytes_max: 16 << 20, control_bytes_max: 64 << 10 }
    }
}
