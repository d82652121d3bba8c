//! What a cursor skips: subjects its reader did not ask for, records from before its start, and what it is to lose.

use std::num::NonZeroU32;
use std::sync::Arc;

use dunlin_frame::Frame;

use super::View;
use crate::log::GoesOn;
use crate::subject::{Pattern, TailPattern};

/// What of a log a reader gets.
#[derive(Clone)]
pub struct Filter {
    /// Says of a subject's tail whether the reader wants its records.
    pub wants: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// All tails that the reader may want match this, where that is known: it is woken for those alone.
    pub within: Option<TailPattern>,
    /// What it is shown of these, where that is not all there is.
    pub view: Option<View>,
}

impl Filter {
    /// All there is of the records whose subjects' tails are wanted.
    pub fn new(wants: impl Fn(&str) -> bool + Send + Sync + 'static) -> Filter {
        Filter { wants: Arc::new(wants), within: None, view: None }
    }

    /// All there is of the records whose subjects' tails match the pattern.
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

/// What a cursor skips.
#[derive(Debug, Default)]
pub(super) struct Select {
    pub(super) filter: Option<Filter>,
    pub(super) appended_from_ns: u64,
    pub(super) lose: Option<Lose>,
    /// It sleeps until a record of these subjects comes.
    pub(super) narrow: Option<Asleep>,
}

/// A cursor that is woken for some subjects only.
#[derive(Debug)]
pub(super) struct Asleep {
    pub(super) pattern: Pattern,
    pub(super) goes_on: GoesOn,
    pub(super) is_armed: bool,
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
    /// What it takes to be woken for some subjects only, where that can be.
    pub(super) fn narrow(&mut self) -> Option<&mut Asleep> {
        if self.narrow.is_none() {
            let pattern = self.filter.as_ref()?.within.as_ref()?.to_pattern()?;
            self.narrow = Some(Asleep { pattern, goes_on: GoesOn::default(), is_armed: false });
        }
        self.narrow.as_mut()
    }

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
