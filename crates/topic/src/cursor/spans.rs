//! Spans: consecutive records of a log that a session can send together, without copying them.

use bytes::Bytes;

use super::{Cursor, RecordVerdict};
use crate::segment::{SegmentFrame, SegmentFrames};

/// Consecutive records of a log that a session sends together or skips together.
#[derive(Debug)]
pub struct RecordSpan<'a> {
    /// Number of records in the span.
    pub count: u32,
    /// Number of bytes that the records take in the segment. The session passes this number to [`Cursor::advance`] or
    /// [`Cursor::skip`].
    pub advance_bytes: u32,
    /// The content of the span.
    pub content: RecordSpanContent<'a>,
}

/// The content of a span: bytes to send, or the reason why the session does not send the records.
#[derive(Debug)]
pub enum RecordSpanContent<'a> {
    /// Whole frames, one directly after the other.
    Frames(&'a [u8]),
    /// One record whose payload is stored outside of the segment. Send `head` with the flag
    /// [`dunlin_frame::FLAG_BY_REF`] cleared, then the payload, then padding.
    ByRef {
        /// The frame's header and meta fields.
        head: &'a [u8],
        /// The payload, which is to be sent after `head`.
        payload: &'a Bytes,
    },
    /// Records that this subscriber does not receive, because a filter excludes them, or because they have expired.
    Skipped,
    /// A record that is withheld for tests. The `prev_seq` of the next record is not changed, so that the subscriber
    /// notices the loss.
    Lost,
}

/// An iterator over the spans of records in the present segment.
#[derive(Debug)]
pub struct RecordSpans<'a> {
    cursor: &'a Cursor,
    frames: Option<SegmentFrames<'a>>,
    next_seq: u64,
    span_bytes_max: usize,
}

impl<'a> RecordSpans<'a> {
    pub(super) fn new(
        cursor: &'a Cursor,
        frames: Option<SegmentFrames<'a>>,
        span_bytes_max: usize,
    ) -> RecordSpans<'a> {
        RecordSpans { cursor, frames, next_seq: cursor.next.seq, span_bytes_max }
    }
}

impl<'a> Iterator for RecordSpans<'a> {
    type Item = RecordSpan<'a>;

    fn next(&mut self) -> Option<RecordSpan<'a>> {
        let frames = self.frames.as_mut()?;
        let start = frames.rest();
        let first = frames.next()?;
        let mut seq = self.next_seq;
        let kind = self.cursor.kind(seq, &first);
        let mut span = RecordSpan {
            count: 1,
            advance_bytes: first.bytes.len() as u32,
            content: RecordSpanContent::Skipped,
        };
        self.next_seq += 1;
        match kind {
            Kind::ByRef => {
                let head = &first.bytes[..dunlin_frame::HEAD_BYTES + first.frame.meta_bytes().len()];
                span.content = first
                    .by_ref
                    .map_or(RecordSpanContent::Skipped, |payload| RecordSpanContent::ByRef { head, payload });
                return Some(span);
            }
            Kind::Lost => {
                span.content = RecordSpanContent::Lost;
                return Some(span);
            }
            Kind::Frames | Kind::Skipped => {}
        }
        loop {
            let before = frames.clone();
            let Some(entry) = frames.next() else { break };
            let bytes = span.advance_bytes as usize + entry.bytes.len();
            seq += 1;
            if self.cursor.kind(seq, &entry) != kind || (kind == Kind::Frames && bytes > self.span_bytes_max)
            {
                *frames = before;
                break;
            }
            span.count += 1;
            span.advance_bytes = bytes as u32;
            self.next_seq += 1;
        }
        if kind == Kind::Frames {
            span.content = RecordSpanContent::Frames(&start[..span.advance_bytes as usize]);
        }
        Some(span)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Frames,
    ByRef,
    Skipped,
    Lost,
}

impl Cursor {
    #[inline(always)]
    fn kind(&self, seq: u64, entry: &SegmentFrame<'_>) -> Kind {
        match self.verdict(seq, entry.frame) {
            RecordVerdict::Skipped => Kind::Skipped,
            RecordVerdict::Lost => Kind::Lost,
            RecordVerdict::Selected if entry.by_ref.is_some() => Kind::ByRef,
            RecordVerdict::Selected => Kind::Frames,
        }
    }
}
