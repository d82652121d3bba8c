//! Defines the limits of decoders.

/// The sizes of the largest messages that a decoder accepts. A larger message is refused when its header is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderLimits {
    /// Maximum size of a message with records, header included, bytes.
    pub run_bytes_max: usize,
    /// Maximum size of any other message, header included, bytes.
    pub control_bytes_max: usize,
}

impl Default for DecoderLimits {
    fn default() -> DecoderLimits {
        DecoderLimits { run_bytes_max: 16 << 20, control_bytes_max: 64 << 10 }
    }
}
