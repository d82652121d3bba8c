//! Decides which records a cursor skips: records of unwanted subjects, records that were appended before the
//! subscription's start time, and records that are withheld for tests.

use std::num::NonZeroU32;
use std::sync::Arc;

use dunlin_frame::Frame;

use super::PayloadFilter;
use crate::log::ResumeSeq;
use crate::subject::{Pattern, TailPattern};

/// After this many bytes of skipped records, a read pauses and lets other work of the thread run.
const SKIP_BYTES_MAX: u32 = 1 << 20;
/// A skipped record counts as at least this many bytes, because even a small record takes a minimum time to check.
const SKIP_RECORD_BYTES_MIN: u32 = 128;

/// A limit on how many records a read may skip before other work of the thread runs: about 1 MiB, or 8,192 small
/// records.
///
/// A read that starts with a spent budget still skips one record, so that each read makes progress.
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
    /// Whether the budget is spent, so that other work of the thread must run before more records are skipped.
    #[inline(always)]
    pub fn is_spent(&self) -> bool {
        self.bytes_left == 0
    }

    /// Counts one skipped record of this size.
    #[inline(always)]
    pub fn count(&mut self, record_bytes: u32) {
        self.bytes_left = self.bytes_left.saturating_sub(record_bytes.max(SKIP_RECORD_BYTES_MIN));
    }
}

/// A subscriber's filter for the records of a log. The filter decides which records the subscriber receives, and may
/// reduce the payloads of these records.
#[derive(Clone)]
pub struct Filter {
    /// Returns whether the subscriber receives records with this subject tail, which is the subject without the topic's
    /// literal prefix.
    pub accepts: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// A pattern that matches every subject tail for which `accepts` returns `true`; `None` if no such pattern is
    /// known. With a pattern, the cursor wakes only for matching records.
    pub tails: Option<TailPattern>,
    /// Reduces the payloads. Set if the subscriber may see only parts of them.
    pub payload_filter: Option<PayloadFilter>,
}

impl Filter {
    /// Creates a filter that selects a record if `accepts` returns `true` for its subject tail. Payloads are not
    /// reduced.
    pub fn new(accepts: impl Fn(&str) -> bool + Send + Sync + 'static) -> Filter {
        Filter { accepts: Arc::new(accepts), tails: None, payload_filter: None }
    }

    /// Creates a filter that selects the records whose subject tails match the pattern. Payloads are not reduced.
    pub fn of_tails(tails: TailPattern) -> Filter {
        let covering = Some(tails.clone());
        Filter { tails: covering, ..Filter::new(move |tail| tails.matches(tail)) }
    }

    /// Returns a filter that selects the records which at least one of `filters` selects. `None` stands for a filter
    /// that selects all records. All of `filters` must reduce payloads in the same way.
    pub fn any_of(mut filters: Vec<Option<Filter>>) -> Option<Filter> {
        if filters.len() == 1 {
            return filters.pop()?;
        }
        let filters: Vec<Filter> = filters.into_iter().collect::<Option<_>>()?;
        let payload_filter = filters.iter().find_map(|filter| filter.payload_filter.clone());
        let tails = filters.first().and_then(|first| first.tails.clone());
        let tails = tails.filter(|tails| filters.iter().all(|other| other.tails.as_ref() == Some(tails)));
        let accepts = move |tail: &str| filters.iter().any(|filter| (filter.accepts)(tail));
        Some(Filter { tails, payload_filter, ..Filter::new(accepts) })
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("payload_filter", &self.payload_filter).finish_non_exhaustive()
    }
}

/// Decides which records a cursor skips.
#[derive(Debug, Default)]
pub(super) struct Selector {
    pub(super) filter: Option<Filter>,
    pub(super) appended_from_ns: u64,
    pub(super) loss_injector: Option<LossInjector>,
    /// Set if the cursor sleeps until a record of its own subjects arrives. `None` if every record wakes the cursor.
    pub(super) subject_sleep: Option<SubjectSleep>,
}

/// The state of a cursor that sleeps until a record of its own subjects arrives.
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
    /// The record is withheld, as if it had been lost without a notice.
    Lost,
}

/// Withholds records whose sequence number is a multiple of `every`, to test how a subscriber handles losses. A
/// withheld record is delivered when the subscriber requests it again.
#[derive(Debug)]
pub(super) struct LossInjector {
    every: NonZeroU32,
    /// All records up to this sequence number are delivered. Later records may be withheld.
    delivered_through: u64,
}

impl LossInjector {
    pub(super) fn new(every: NonZeroU32) -> LossInjector {
        LossInjector { every, delivered_through: 0 }
    }
}

impl Selector {
    /// Returns the state that the cursor needs to sleep until a record of its own subjects arrives. Returns `None` if
    /// no single pattern matches exactly the subjects of the filter.
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

    /// The subscriber has noticed a loss after record `seq`: the first record that was withheld after `seq` is no
    /// longer withheld.
    pub(super) fn stop_withholding_after(&mut self, seq: u64) {
        if let Some(injector) = &mut self.loss_injector {
            let every = u64::from(injector.every.get());
            injector.delivered_through =
                injector.delivered_through.max((seq / every + 1).saturating_mul(every));
        }
    }
}
