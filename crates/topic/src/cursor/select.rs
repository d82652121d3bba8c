//! Selects the records that a cursor skips: records of unwanted subjects, records before the subscription's start time,
//! and records that are withheld for tests.

use std::num::NonZeroU32;
use std::sync::Arc;

use dunlin_frame::Frame;

use super::PayloadFilter;
use crate::log::ResumeSeq;
use crate::subject::{Pattern, TailPattern};

/// The number of bytes of unselected records after which a read lets the thread's other work run.
const SKIP_BYTES_MAX: u32 = 1 << 20;
/// A skipped record counts as at least this many bytes, because checking a smaller record takes no less time.
const SKIP_RECORD_BYTES_MIN: u32 = 128;

/// A limit on how many unselected records may be skipped before the thread's other work runs: about 1 MiB, or 8,192
/// records.
///
/// A read that has spent the budget still skips one record, so that each read makes progress.
#[derive(Debug)]
pub struct SkipBudget {
    bytes_left: u32,
}

impl Default for SkipBudget {
    #[inline(always)]
    fn default() -> SkipBudget {
        SkipBudget { bytes_left: SKIP_BYTES_MAX }
    }
}

impl SkipBudget {
    /// Whether the thread's other work must run before more records are skipped.
    #[inline(always)]
    pub fn is_spent(&self) -> bool {
        self.bytes_left == 0
    }

    /// Counts one skipped record.
    #[inline(always)]
    pub fn count(&mut self, record_bytes: u32) {
        self.bytes_left = self.bytes_left.saturating_sub(record_bytes.max(SKIP_RECORD_BYTES_MIN));
    }
}

/// A filter that selects the records of a log for a subscriber, and may shorten their payloads.
#[derive(Clone)]
pub struct Filter {
    /// Whether the subscriber receives records with this subject tail.
    pub accepts: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// A pattern that covers all accepted tails, if known. The cursor then wakes only for matching records.
    pub tails: Option<TailPattern>,
    /// Shortens payloads if the subscriber may see only parts of them.
    pub payload_filter: Option<PayloadFilter>,
}

impl Filter {
    /// Selects the records whose subject tails `accepts` accepts. Payloads are not reduced.
    pub fn new(accepts: impl Fn(&str) -> bool + Send + Sync + 'static) -> Filter {
        Filter { accepts: Arc::new(accepts), tails: None, payload_filter: None }
    }

    /// Selects the records whose subject tails match the pattern. Payloads are not reduced.
    pub fn of_tails(tails: TailPattern) -> Filter {
        let covering = Some(tails.clone());
        Filter { tails: covering, ..Filter::new(move |tail| tails.matches(tail)) }
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("payload_filter", &self.payload_filter).finish_non_exhaustive()
    }
}

/// Selects the records that a cursor skips.
#[derive(Debug, Default)]
pub(super) struct Selector {
    pub(super) filter: Option<Filter>,
    pub(super) appended_from_ns: u64,
    pub(super) loss_injector: Option<LossInjector>,
    /// The state for sleeping until a record of the cursor's subjects arrives. `None` if the cursor wakes for all
    /// records.
    pub(super) subject_sleep: Option<SubjectSleep>,
}

/// The state of a cursor that sleeps until a record of its subjects arrives.
#[derive(Debug)]
pub(super) struct SubjectSleep {
    pub(super) pattern: Pattern,
    pub(super) resume_seq: ResumeSeq,
    pub(super) is_armed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordVerdict {
    Selected,
    /// The record is skipped. The next delivered record's `prev_seq` reports it as skipped, not as lost.
    Skipped,
    /// The record is withheld without a notice.
    Lost,
}

/// Withholds records whose sequence number is a multiple of `every`, to test how a subscriber handles losses. A record
/// is withheld only until the subscriber requests it again.
#[derive(Debug)]
pub(super) struct LossInjector {
    every: NonZeroU32,
    /// The sequence number up to which records are delivered. Later records may be withheld.
    delivered_through: u64,
}

impl LossInjector {
    pub(super) fn new(every: NonZeroU32) -> LossInjector {
        LossInjector { every, delivered_through: 0 }
    }
}

impl Selector {
    /// Returns the state for a subscriber that sleeps until a record of some subjects is appended. Returns `None` if
    /// the filter's subjects cannot be written as one pattern.
    pub(super) fn prepare_subject_sleep(&mut self) -> Option<&mut SubjectSleep> {
        if self.subject_sleep.is_none() {
            let pattern = self.filter.as_ref()?.tails.as_ref()?.to_pattern()?;
            self.subject_sleep =
                Some(SubjectSleep { pattern, resume_seq: ResumeSeq::default(), is_armed: false });
        }
        self.subject_sleep.as_mut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filter.is_none() && self.appended_from_ns == 0 && self.loss_injector.is_none()
    }

    #[inline(always)]
    pub(super) fn verdict(&self, seq: u64, frame: &Frame<'_>) -> RecordVerdict {
        if let Some(injector) = &self.loss_injector
            && seq > injector.delivered_through
            && seq.is_multiple_of(injector.every.get().into())
        {
            return RecordVerdict::Lost;
        }
        let is_selected = frame.append_time_ns() >= self.appended_from_ns
            && self.filter.as_ref().is_none_or(|filter| (filter.accepts)(frame.subject_tail()));
        if is_selected { RecordVerdict::Selected } else { RecordVerdict::Skipped }
    }

    /// Stops withholding the first withheld record after `seq`, because the subscriber has noticed the loss.
    pub(super) fn stop_withholding_after(&mut self, seq: u64) {
        if let Some(injector) = &mut self.loss_injector {
            let every = u64::from(injector.every.get());
            injector.delivered_through =
                injector.delivered_through.max((seq / every + 1).saturating_mul(every));
        }
    }
}
