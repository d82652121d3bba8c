//! Frames that came from outside and passed the check.

use dunlin_frame::{Frame, FrameError};

/// Whole, sound frames, one after another.
#[derive(Debug, Clone, Copy)]
pub struct CheckedRun<'a> {
    bytes: &'a [u8],
    count: u32,
    largest: usize,
}

impl<'a> CheckedRun<'a> {
    /// Checks that `bytes` is exactly `count` frames, each of at most `frame_bytes_max`.
    pub fn check(bytes: &'a [u8], count: u32, frame_bytes_max: usize) -> Result<CheckedRun<'a>, FrameError> {
        let mut rest = bytes;
        let mut largest = 0;
        for _ in 0..count {
            let (_, stride) = Frame::check(rest, frame_bytes_max)?;
            largest = largest.max(stride);
            rest = &rest[stride..];
        }
        if !rest.is_empty() {
            return Err(FrameError::Run("more bytes than records"));
        }
        Ok(CheckedRun { bytes, count, largest })
    }

    /// The frames.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The largest of them, padding included.
    pub fn largest(&self) -> usize {
        self.largest
    }
}
