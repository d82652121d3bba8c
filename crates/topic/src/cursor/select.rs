//! What a cursor skips: subjects its reader did not ask for, records from before its start, and what it is to lose.

use std::num::NonZeroU32;
use std::sync::Arc;

use dunlin_frame::Frame;

use super::View;

/// What of a log a reader gets.
#[derive(Clone)]
pub struct Filter {
    /// Says of a subject's tail whether the reader wants its records.
    pub wants: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// What it is shown of these, where that is not all there is.
    pub view: Option<View>,
}

impl Filter {
    /// All there is of the records whose subjects' tails are wanted.
    pub fn new(wants: impl Fn(&str) -> bool + Send + Sync + 'static) -> Filter {
        Filter { wants: Arc::new(wants), view: None }
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("view", &self.view).finish_non_exhaustive()
    }
}

/// What a cursor skips.
#[derive(Debug, Default)]
pub(super) struct Select {
    pub(super) filter: Option<Filter>,
    pub(super) appended_from_ns: u64,
    pub(super) lose: Option<Lose>,
}

/// What becomes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The reader gets it.
    Wanted,
    /// It does not, and is told so with the next.
    Skipped,
    /// It does not, and is not told.
    Lost,
}

/// Records that are lost on purpose, each once.
#[derive(Debug)]
pub(super) struct Lose {
    every: NonZeroU32,
    /// Those up to here are not lost any more.
    spared: u64,
}

impl Lose {
    pub(super) fn every(every: NonZeroU32) -> Lose {
        Lose { every, spared: 0 }
    }
}

impl Select {
    pub(super) fn is_empty(&self) -> bool {
        self.filter.is_none() && self.appended_from_ns == 0 && self.lose.is_none()
    }

    #[inline(always)]
    pub(super) fn judge(&self, seq: u64, frame: &Frame<'_>) -> Verdict {
        if let Some(lose) = &self.lose
            && seq > lose.spared
            && seq.is_multiple_of(lose.every.get().into())
        {
            return Verdict::Lost;
        }
        let wanted = frame.append_time_ns() >= self.appended_from_ns
            && self.filter.as_ref().is_none_or(|filter| (filter.wants)(frame.subject_tail()));
        if wanted { Verdict::Wanted } else { Verdict::Skipped }
    }

    /// The reader has noticed that it lost the first record due after this one; the next it loses anew.
    pub(super) fn spare_after(&mut self, seq: u64) {
        if let Some(lose) = &mut self.lose {
            let every = u64::from(lose.every.get());
            lose.spared = lose.spared.max((seq / every + 1).saturating_mul(every));
        }
    }
}
