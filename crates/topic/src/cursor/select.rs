//! Selects the records that a cursor skips: records of unwanted subjects, records before its start time, and
//! records to lose for tests.

use std::num::NonZeroU32;
use std::sync::Arc;

use dunlin_frame::Frame;

use super::PayloadView;
use crate::log::ResumeSeq;
use crate::subject::{Pattern, TailPattern};

/// A filter that selects the records of a log for a subscriber, and may shorten their payloads.
#[derive(Clone)]
pub struct Filter {
    /// Whether the subscriber wants records with this subject tail.
    pub wants: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// A pattern that covers all wanted tails, if known. The cursor then wakes only for matching records.
    pub within: Option<TailPattern>,
    /// Reduces payloads if the subscriber may not see all parts of them.
    pub view: Option<PayloadView>,
}

impl Filter {
    /// Selects records whose subject tails `wants` accepts, with full payloads.
    pub fn new(wants: impl Fn(&str) -> bool + Send + Sync + 'static) -> Filter {
        Filter { wants: Arc::new(wants), within: None, view: None }
    }

    /// Selects records whose subject tails match the pattern, with full payloads.
    pub fn of_tails(tails: TailPattern) -> Filter {
        let within = Some(tails.clone());
        Filter { within, ..Filter::new(move |tail| tails.matches(tail)) }
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("view", &self.view).finish_non_exhaustive()
    }
}

/// Selects the records that a cursor skips.
#[derive(Debug, Default)]
pub(super) struct Selector {
    pub(super) filter: Option<Filter>,
    pub(super) appended_from_ns: u64,
    pub(super) lose: Option<LossInjector>,
    /// State of the cursor's sleep until a record of its subjects arrives; `None` if it wakes for all records.
    pub(super) narrow: Option<SubjectSleep>,
}

/// The state of a cursor that sleeps until a record of its subjects arrives.
#[derive(Debug)]
pub(super) struct SubjectSleep {
    pub(super) pattern: Pattern,
    pub(super) goes_on: ResumeSeq,
    pub(super) is_armed: bool,
}

/// How a cursor treats a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordVerdict {
    /// The subscriber receives the record.
    Wanted,
    /// The record is skipped; the next record's `prev_seq` covers it.
    Skipped,
    /// The record is withheld without a notice.
    Lost,
}

/// Withholds each selected record once, to test how a subscriber handles losses.
#[derive(Debug)]
pub(super) struct LossInjector {
    every: NonZeroU32,
    /// The sequence number up to which records are delivered. Later records may be withheld.
    spared: u64,
}

impl LossInjector {
    pub(super) fn every(every: NonZeroU32) -> LossInjector {
        LossInjector { every, spared: 0 }
    }
}

impl Selector {
    /// The state for sleeping until a record of some subjects; `None` if the filter does not allow this.
    pub(super) fn narrow(&mut self) -> Option<&mut SubjectSleep> {
        if self.narrow.is_none() {
            let pattern = self.filter.as_ref()?.within.as_ref()?.to_pattern()?;
            self.narrow = Some(SubjectSleep { pattern, goes_on: ResumeSeq::default(), is_armed: false });
        }
        self.narrow.as_mut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filter.is_none() && self.appended_from_ns == 0 && self.lose.is_none()
    }

    #[inline(always)]
    pub(super) fn judge(&self, seq: u64, frame: &Frame<'_>) -> RecordVerdict {
        if let Some(lose) = &self.lose
            && seq > lose.spared
            && seq.is_multiple_of(lose.every.get().into())
        {
            return RecordVerdict::Lost;
        }
        let wanted = frame.append_time_ns() >= self.appended_from_ns
            && self.filter.as_ref().is_none_or(|filter| (filter.wants)(frame.subject_tail()));
        if wanted { RecordVerdict::Wanted } else { RecordVerdict::Skipped }
    }

    /// Does not withhold the record after `seq` again, because the subscriber has noticed its loss.
    pub(super) fn spare_after(&mut self, seq: u64) {
        if let Some(lose) = &mut self.lose {
            let every = u64::from(lose.every.get());
            lose.spared = lose.spared.max((seq / every + 1).saturating_mul(every));
        }
    }
}
