//! Reduces payloads for subscribers that may see only a part of each record.
//!
//! Each such subscriber receives its own copy of the record, with a reduced payload.

use std::borrow::Cow;
use std::sync::Arc;

use dunlin_frame::{Frame, RecordMeta};

use super::{Cursor, Hint, SkipBudget};
use crate::log::MergedRecord;

/// A function that reduces each payload to the part that a subscriber may see, or removes the record if the subscriber
/// may see no part of it.
#[derive(Clone)]
pub struct PayloadFilter(Arc<PayloadFn>);

/// The type of a [`PayloadFilter`]'s function: it returns the reduced payload, or `None` to remove the record.
type PayloadFn = dyn for<'p> Fn(&'p [u8]) -> Option<Cow<'p, [u8]>> + Send + Sync;

impl PayloadFilter {
    /// Creates a filter that calls `reduce` for each payload. `reduce` returns the reduced payload, or `None` to remove
    /// the record.
    pub fn new(
        reduce: impl for<'p> Fn(&'p [u8]) -> Option<Cow<'p, [u8]>> + Send + Sync + 'static,
    ) -> PayloadFilter {
        PayloadFilter(Arc::new(reduce))
    }
}

impl std::fmt::Debug for PayloadFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PayloadFilter")
    }
}

impl Cursor {
    /// Replaces the next record by a copy with a reduced payload. If the subscriber may see no part of the record,
    /// skips the record and returns `false`.
    #[inline(always)]
    pub(super) fn apply_payload_filter(&mut self, skips: &mut SkipBudget) -> bool {
        match self.select.as_ref().and_then(|select| select.filter.as_ref()?.payload_filter.clone()) {
            None => true,
            Some(payload_filter) => self.apply_payload_filter_slow_path(&payload_filter, skips),
        }
    }

    #[cold]
    fn apply_payload_filter_slow_path(
        &mut self,
        payload_filter: &PayloadFilter,
        skips: &mut SkipBudget,
    ) -> bool {
        let Hint::PinnedSegment(pinned) = &self.hint else { return true };
        let Some(entry) = pinned.frames(self.offset).next() else { return true };
        let bytes = entry.bytes.len() as u32;
        let Some(frame) = (payload_filter.0)(entry.frame.payload())
            .and_then(|reduced| with_payload(&entry.frame, &reduced))
        else {
            self.skip(1, bytes);
            skips.count(bytes);
            return false;
        };
        let Hint::PinnedSegment(pinned) = std::mem::replace(&mut self.hint, Hint::None) else { return true };
        let tail = Some((pinned.release(), self.offset + bytes));
        self.hint = Hint::MergedRecord(Box::new(MergedRecord {
            position: self.next,
            since: self.next.seq - 1,
            frame,
            tail,
        }));
        self.offset = 0;
        true
    }

    /// Drops the reduced copy of a record if it was not delivered yet, because the filter may change.
    pub(super) fn discard_reduced_copy(&mut self) {
        if self.follower.is_none() && matches!(self.hint, Hint::MergedRecord(_)) && self.offset == 0 {
            // Without a hint, the next read looks up the record again.
            self.hint = Hint::None;
        }
    }
}

/// Returns a copy of the record with another payload.
fn with_payload(frame: &Frame<'_>, payload: &[u8]) -> Option<Box<[u8]>> {
    let headers: Vec<(&str, &[u8])> = frame.headers().collect();
    let meta = RecordMeta {
        event_time_ns: frame.event_time_ns(),
        expires_ns: frame.expires_ns(),
        subject_tail: frame.subject_tail(),
        key: frame.key(),
        reply: frame.reply(),
        headers: &headers,
    };
    let encoded = meta.measure(payload.len()).ok()?;
    let mut bytes = vec![0; encoded.padded()].into_boxed_slice();
    meta.encode(encoded, frame.append_time_ns(), payload, &mut bytes);
    Some(bytes)
}
