//! Batches of frames that come from another process. This process has validated the frames.

use dunlin_frame::{FLAG_REPLY, Frame, FrameError};

use crate::subject::Subject;

/// A batch: the bytes of consecutive frames that were checked to be complete and valid.
#[derive(Debug, Clone, Copy)]
pub struct CheckedBatch<'a> {
    bytes: &'a [u8],
    count: u32,
    largest: usize,
    flags: u8,
}

impl<'a> CheckedBatch<'a> {
    /// Validates that `bytes` consists of exactly `count` frames, of which each has at most `frame_bytes_max` bytes.
    pub fn check(
        bytes: &'a [u8],
        count: u32,
        frame_bytes_max: usize,
    ) -> Result<CheckedBatch<'a>, FrameError> {
        let mut rest = bytes;
        let mut largest = 0;
        let mut flags = 0;
        for _ in 0..count {
            let (frame, stride) = Frame::check(rest, frame_bytes_max)?;
            largest = largest.max(stride);
            flags |= frame.flags();
            rest = &rest[stride..];
        }
        if !rest.is_empty() {
            return Err(FrameError::Batch("bytes follow after the last record"));
        }
        Ok(CheckedBatch { bytes, count, largest, flags })
    }

    /// The bytes of all frames.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number of frames.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Size of the largest frame, including its padding, in bytes.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Checks that the reply subject of each frame is valid. Listeners write reply subjects into lines of their
    /// protocol.
    pub fn check_replies(&self) -> Result<(), FrameError> {
        if self.flags & FLAG_REPLY == 0 {
            return Ok(());
        }
        self.frames().filter_map(|frame| frame.reply()).try_for_each(check_reply)
    }

    /// All flags that are set in at least one of the frames.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Iterates over the frames.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'a>> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (frame, stride) = Frame::split(rest)?;
            rest = &rest[stride..];
            Some(frame)
        })
    }
}

pub(crate) fn check_reply(reply: &str) -> Result<(), FrameError> {
    Subject::parse(reply).map(drop).map_err(|_| FrameError::Meta("reply"))
}
