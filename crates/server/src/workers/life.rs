//! State machine of a worker process: observations and time come in, events and signals go out.
//!
//! ```text
//!  starting ──attached──► ready ──drain: SIGTERM──► draining ──ended──► Drained, Gone
//!     │  │                  │                           └──grace over──► Drained; then, as it is told: SIGKILL ──► Gone
//!     │  └─ended─► Failed   ├──ended──► Gone
//!     └─too long: SIGKILL   └──not among the workers for too long: SIGKILL ──► Gone
//!
//!  preparing ──says so──► warm ──woken──► starting, as above
//!     └─attached, or too long: SIGKILL ──► Failed
//! ```

/// State of a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The process must attach until then.
    Starting {
        until_ms: u64,
    },
    /// The process must report that it is prepared until then.
    Preparing {
        until_ms: u64,
    },
    /// The process waits in the warm pool.
    Warm,
    /// The process attached too late or without a call, and is being killed.
    Failing,
    Ready,
    Draining {
        until_ms: u64,
    },
    /// The process was killed or asked to end.
    Ending,
}

/// The lifecycle of a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    stage: Stage,
    /// Since when no worker of its name is attached.
    unseen_ms: Option<u64>,
}

/// Events of a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Ready,
    Prepared,
    Failed,
    Drained,
    Gone,
}

/// Signals to a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Nothing,
    /// SIGTERM, to the process.
    Ask,
    /// SIGKILL, to its whole group.
    Kill,
}

impl Life {
    pub(super) fn new(until_ms: u64) -> Life {
        Life { stage: Stage::Starting { until_ms }, unseen_ms: None }
    }

    /// The lifecycle of a process for the warm pool.
    pub(super) fn for_pool(until_ms: u64) -> Life {
        Life { stage: Stage::Preparing { until_ms }, unseen_ms: None }
    }

    /// Whether the process has yet to report that it is prepared.
    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.stage, Stage::Preparing { .. })
    }

    /// Records that the process is prepared.
    pub(super) fn prepared(&mut self) {
        self.stage = Stage::Warm;
    }

    /// Calls a warm process, which must then attach until `until_ms`. Returns whether the process was warm.
    pub(super) fn wake(&mut self, until_ms: u64) -> bool {
        let is_warm = self.stage == Stage::Warm;
        if is_warm {
            self.stage = Stage::Starting { until_ms };
        }
        is_warm
    }

    /// Records whether a worker of its name is attached.
    pub(super) fn seen(&mut self, now_ms: u64, is_attached: bool) -> Option<Said> {
        if !is_attached {
            self.unseen_ms.get_or_insert(now_ms);
            return None;
        }
        self.unseen_ms = None;
        match self.stage {
            Stage::Starting { .. } => {
                self.stage = Stage::Ready;
                Some(Said::Ready)
            }
            // The process takes tasks that it was not called for.
            Stage::Preparing { .. } | Stage::Warm => {
                self.stage = Stage::Ending;
                Some(Said::Failed)
            }
            _ => None,
        }
    }

    /// Records that the attached workers are unknown.
    pub(super) fn unknown(&mut self) {
        self.unseen_ms = None;
    }

    /// Handles deadlines.
    pub(super) fn advance(&mut self, now_ms: u64, silent_ms_max: u64) -> (Option<Said>, Deed) {
        let is_silent = self.unseen_ms.is_some_and(|since_ms| now_ms >= since_ms + silent_ms_max);
        match self.stage {
            Stage::Starting { until_ms } | Stage::Preparing { until_ms } if now_ms >= until_ms => {
                self.stage = Stage::Failing;
                (None, Deed::Kill)
            }
            Stage::Ready if is_silent => (None, Deed::Kill),
            Stage::Draining { until_ms } if now_ms >= until_ms => {
                self.stage = Stage::Ending;
                (Some(Said::Drained), Deed::Nothing)
            }
            _ => (None, Deed::Nothing),
        }
    }

    pub(super) fn drain(&mut self, until_ms: u64) -> Deed {
        match self.stage {
            Stage::Ready | Stage::Starting { .. } | Stage::Preparing { .. } | Stage::Warm => {
                self.stage = Stage::Draining { until_ms };
                Deed::Ask
            }
            // A second drain may shorten the grace period, never extend it.
            Stage::Draining { until_ms: before_ms } => {
                self.stage = Stage::Draining { until_ms: until_ms.min(before_ms) };
                Deed::Nothing
            }
            Stage::Failing | Stage::Ending => Deed::Nothing,
        }
    }

    pub(super) fn terminate(&mut self) -> Deed {
        self.stage = Stage::Ending;
        Deed::Kill
    }

    /// The events of a process that has ended.
    pub(super) fn ended(&self) -> &'static [Said] {
        match self.stage {
            Stage::Starting { .. } | Stage::Preparing { .. } | Stage::Failing => &[Said::Failed],
            Stage::Draining { .. } => &[Said::Drained, Said::Gone],
            Stage::Ready | Stage::Warm | Stage::Ending => &[Said::Gone],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT_MS: u64 = 1_000;

    fn ready() -> Life {
        let mut life = Life::new(5_000);
        assert_eq!(life.seen(100, false), None);
        assert_eq!(life.seen(200, true), Some(Said::Ready));
        assert_eq!(life.seen(300, true), None, "said once");
        life
    }

    #[test]
    fn worker_that_ends_or_stalls_before_attaching_has_failed() {
        let mut life = Life::new(5_000);
        assert_eq!(life.ended(), [Said::Failed]);
        assert_eq!(life.advance(4_999, SILENT_MS), (None, Deed::Nothing));
        assert_eq!(life.advance(5_000, SILENT_MS), (None, Deed::Kill));
        assert_eq!(life.seen(5_001, true), None, "too late");
        assert_eq!(life.ended(), [Said::Failed]);
    }

    #[test]
    fn drained_worker_is_killed_after_its_grace_period() {
        let mut life = ready();
        assert_eq!(life.drain(10_000), Deed::Ask);
        assert_eq!(life.ended(), [Said::Drained, Said::Gone]);
        assert_eq!(life.drain(20_000), Deed::Nothing, "no longer than it had");
        assert_eq!(life.advance(9_999, SILENT_MS), (None, Deed::Nothing));
        assert_eq!(life.advance(10_000, SILENT_MS), (Some(Said::Drained), Deed::Nothing));
        assert_eq!(life.advance(10_001, SILENT_MS), (None, Deed::Nothing), "said once");
        assert_eq!((life.terminate(), life.ended()), (Deed::Kill, &[Said::Gone][..]));
    }

    #[test]
    fn prepared_worker_waits_without_limit_until_it_is_called() {
        let mut life = Life::for_pool(5_000);
        assert!(life.is_preparing() && !life.wake(1), "there is nobody to call yet");
        life.seen(100, false);
        life.prepared();
        assert_eq!(life.advance(1_000_000, SILENT_MS), (None, Deed::Nothing));
        assert!(life.wake(1_005_000));
        assert_eq!(life.advance(1_004_999, SILENT_MS), (None, Deed::Nothing));
        assert_eq!(life.seen(1_004_999, true), Some(Said::Ready));
        let mut late = Life::for_pool(5_000);
        assert_eq!((late.advance(5_000, SILENT_MS), late.ended()), ((None, Deed::Kill), &[Said::Failed][..]));
        let mut dead = Life::for_pool(5_000);
        dead.prepared();
        assert_eq!(dead.ended(), [Said::Gone]);
        assert_eq!(dead.drain(9_000), Deed::Ask, "the node stops");
    }

    #[test]
    fn pooled_worker_that_attaches_uncalled_has_failed() {
        let mut life = Life::for_pool(5_000);
        assert_eq!(life.seen(100, true), Some(Said::Failed));
        assert_eq!(life.seen(200, true), None, "said once");
        assert_eq!(life.ended(), [Said::Gone], "of one that is no member any more");
    }

    #[test]
    fn detached_worker_is_killed_unless_its_status_is_unknown() {
        let mut life = ready();
        life.seen(1_000, false);
        life.seen(1_900, false);
        assert_eq!(life.advance(1_999, SILENT_MS), (None, Deed::Nothing));
        life.unknown();
        life.seen(2_000, false);
        assert_eq!(life.advance(2_999, SILENT_MS), (None, Deed::Nothing));
        assert_eq!(life.advance(3_000, SILENT_MS), (None, Deed::Kill));
        assert_eq!(life.ended(), [Said::Gone]);
        // A draining worker detaches before its process ends.
        let mut life = ready();
        life.drain(60_000);
        life.seen(1_000, false);
        assert_eq!(life.advance(50_000, SILENT_MS), (None, Deed::Nothing));
    }
}
