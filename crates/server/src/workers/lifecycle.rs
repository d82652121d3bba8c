//! The state machine of a worker process. Its inputs are observations and the time; its outputs are events and signals.
//!
//! ```text
//!  starting ──attached──► ready ──drain: SIGTERM──► draining ──ended──► Drained, Gone
//!     │  │                  │                           └──grace over──► Drained; on the autoscaler's order: SIGKILL ──► Gone
//!     │  └─ended─► Failed   ├──ended──► Gone
//!     └─too long: SIGKILL   └──not among the workers for too long: SIGKILL ──► Gone
//!
//!  preparing ──reports──► warm ──called──► starting, as above
//!     └─attached, or too long: SIGKILL ──► Failed
//! ```

/// State of a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    /// The process must attach before this time.
    Starting {
        deadline_ms: u64,
    },
    /// The process must report before this time that it is prepared.
    Preparing {
        deadline_ms: u64,
    },
    /// The process waits in the warm pool until it is called.
    Warm,
    /// The process attached too late, or without being called, and is being killed.
    Failing,
    Ready,
    Draining {
        deadline_ms: u64,
    },
    /// The process was killed, or was asked to end.
    Ending,
}

/// The lifecycle of one worker process: its state, and since when its worker is not attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkerLifecycle {
    state: WorkerState,
    /// Time since which no worker with this process's name is attached; `None` while one is.
    detached_since_ms: Option<u64>,
}

/// Events of a worker process that the autoscaler receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LifecycleEvent {
    Ready,
    Prepared,
    Failed,
    Drained,
    Gone,
}

/// Signals to a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessSignal {
    Nothing,
    /// SIGTERM to the process, which asks it to end.
    Terminate,
    /// SIGKILL to the process's whole group.
    Kill,
}

impl WorkerLifecycle {
    pub(super) fn new(deadline_ms: u64) -> WorkerLifecycle {
        WorkerLifecycle { state: WorkerState::Starting { deadline_ms }, detached_since_ms: None }
    }

    /// The lifecycle of a process of the warm pool. It must be prepared before `deadline_ms`.
    pub(super) fn for_pool(deadline_ms: u64) -> WorkerLifecycle {
        WorkerLifecycle { state: WorkerState::Preparing { deadline_ms }, detached_since_ms: None }
    }

    /// Whether the process still has to report that it is prepared.
    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.state, WorkerState::Preparing { .. })
    }

    /// Stores that the process is prepared.
    pub(super) fn set_prepared(&mut self) {
        self.state = WorkerState::Warm;
    }

    /// Calls a warm process, which must attach before `deadline_ms`. Returns whether the process was warm.
    pub(super) fn wake(&mut self, deadline_ms: u64) -> bool {
        let is_warm = self.state == WorkerState::Warm;
        if is_warm {
            self.state = WorkerState::Starting { deadline_ms };
        }
        is_warm
    }

    /// Records whether a worker with this process's name is attached. Returns the event that follows, if any.
    pub(super) fn record_attached(&mut self, now_ms: u64, is_attached: bool) -> Option<LifecycleEvent> {
        if !is_attached {
            self.detached_since_ms.get_or_insert(now_ms);
            return None;
        }
        self.detached_since_ms = None;
        match self.state {
            WorkerState::Starting { .. } => {
                self.state = WorkerState::Ready;
                Some(LifecycleEvent::Ready)
            }
            // The process attached, and so could take tasks, before it was called.
            WorkerState::Preparing { .. } | WorkerState::Warm => {
                self.state = WorkerState::Ending;
                Some(LifecycleEvent::Failed)
            }
            _ => None,
        }
    }

    /// Stores that it is not known which workers are attached.
    pub(super) fn record_unknown(&mut self) {
        self.detached_since_ms = None;
    }

    /// Handles deadlines that have passed.
    pub(super) fn advance(
        &mut self,
        now_ms: u64,
        silent_ms_max: u64,
    ) -> (Option<LifecycleEvent>, ProcessSignal) {
        let is_silent = self.detached_since_ms.is_some_and(|since_ms| now_ms >= since_ms + silent_ms_max);
        match self.state {
            WorkerState::Starting { deadline_ms } | WorkerState::Preparing { deadline_ms }
                if now_ms >= deadline_ms =>
            {
                self.state = WorkerState::Failing;
                (None, ProcessSignal::Kill)
            }
            WorkerState::Ready if is_silent => (None, ProcessSignal::Kill),
            WorkerState::Draining { deadline_ms } if now_ms >= deadline_ms => {
                self.state = WorkerState::Ending;
                (Some(LifecycleEvent::Drained), ProcessSignal::Nothing)
            }
            _ => (None, ProcessSignal::Nothing),
        }
    }

    pub(super) fn drain(&mut self, deadline_ms: u64) -> ProcessSignal {
        match self.state {
            WorkerState::Ready
            | WorkerState::Starting { .. }
            | WorkerState::Preparing { .. }
            | WorkerState::Warm => {
                self.state = WorkerState::Draining { deadline_ms };
                ProcessSignal::Terminate
            }
            // A second drain can shorten the grace period, but not extend it.
            WorkerState::Draining { deadline_ms: before_ms } => {
                self.state = WorkerState::Draining { deadline_ms: deadline_ms.min(before_ms) };
                ProcessSignal::Nothing
            }
            WorkerState::Failing | WorkerState::Ending => ProcessSignal::Nothing,
        }
    }

    pub(super) fn terminate(&mut self) -> ProcessSignal {
        self.state = WorkerState::Ending;
        ProcessSignal::Kill
    }

    /// The events that the end of the process causes.
    pub(super) fn end_events(&self) -> &'static [LifecycleEvent] {
        match self.state {
            WorkerState::Starting { .. } | WorkerState::Preparing { .. } | WorkerState::Failing => {
                &[LifecycleEvent::Failed]
            }
            WorkerState::Draining { .. } => &[LifecycleEvent::Drained, LifecycleEvent::Gone],
            WorkerState::Ready | WorkerState::Warm | WorkerState::Ending => &[LifecycleEvent::Gone],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT_MS: u64 = 1_000;

    fn ready() -> WorkerLifecycle {
        let mut lifecycle = WorkerLifecycle::new(5_000);
        assert_eq!(lifecycle.record_attached(100, false), None);
        assert_eq!(lifecycle.record_attached(200, true), Some(LifecycleEvent::Ready));
        assert_eq!(lifecycle.record_attached(300, true), None, "reported once");
        lifecycle
    }

    #[test]
    fn worker_that_ends_or_stalls_before_attaching_has_failed() {
        let mut lifecycle = WorkerLifecycle::new(5_000);
        assert_eq!(lifecycle.end_events(), [LifecycleEvent::Failed]);
        assert_eq!(lifecycle.advance(4_999, SILENT_MS), (None, ProcessSignal::Nothing));
        assert_eq!(lifecycle.advance(5_000, SILENT_MS), (None, ProcessSignal::Kill));
        assert_eq!(lifecycle.record_attached(5_001, true), None, "too late");
        assert_eq!(lifecycle.end_events(), [LifecycleEvent::Failed]);
    }

    #[test]
    fn drained_worker_is_killed_after_its_grace_period() {
        let mut lifecycle = ready();
        assert_eq!(lifecycle.drain(10_000), ProcessSignal::Terminate);
        assert_eq!(lifecycle.end_events(), [LifecycleEvent::Drained, LifecycleEvent::Gone]);
        assert_eq!(lifecycle.drain(20_000), ProcessSignal::Nothing, "no longer than it had");
        assert_eq!(lifecycle.advance(9_999, SILENT_MS), (None, ProcessSignal::Nothing));
        assert_eq!(
            lifecycle.advance(10_000, SILENT_MS),
            (Some(LifecycleEvent::Drained), ProcessSignal::Nothing)
        );
        assert_eq!(lifecycle.advance(10_001, SILENT_MS), (None, ProcessSignal::Nothing), "reported once");
        assert_eq!(
            (lifecycle.terminate(), lifecycle.end_events()),
            (ProcessSignal::Kill, &[LifecycleEvent::Gone][..])
        );
    }

    #[test]
    fn prepared_warm_worker_may_wait_any_time_until_it_is_called() {
        let mut lifecycle = WorkerLifecycle::for_pool(5_000);
        assert!(lifecycle.is_preparing() && !lifecycle.wake(1), "there is nobody to call yet");
        lifecycle.record_attached(100, false);
        lifecycle.set_prepared();
        assert_eq!(lifecycle.advance(1_000_000, SILENT_MS), (None, ProcessSignal::Nothing));
        assert!(lifecycle.wake(1_005_000));
        assert_eq!(lifecycle.advance(1_004_999, SILENT_MS), (None, ProcessSignal::Nothing));
        assert_eq!(lifecycle.record_attached(1_004_999, true), Some(LifecycleEvent::Ready));
        let mut late = WorkerLifecycle::for_pool(5_000);
        assert_eq!(
            (late.advance(5_000, SILENT_MS), late.end_events()),
            ((None, ProcessSignal::Kill), &[LifecycleEvent::Failed][..])
        );
        let mut dead = WorkerLifecycle::for_pool(5_000);
        dead.set_prepared();
        assert_eq!(dead.end_events(), [LifecycleEvent::Gone]);
        assert_eq!(dead.drain(9_000), ProcessSignal::Terminate, "the node stops");
    }

    #[test]
    fn warm_worker_that_attaches_without_a_call_counts_as_failed() {
        let mut lifecycle = WorkerLifecycle::for_pool(5_000);
        assert_eq!(lifecycle.record_attached(100, true), Some(LifecycleEvent::Failed));
        assert_eq!(lifecycle.record_attached(200, true), None, "reported once");
        assert_eq!(lifecycle.end_events(), [LifecycleEvent::Gone], "of one that is no member any more");
    }

    #[test]
    fn worker_of_unknown_status_is_not_killed_for_silence() {
        let mut lifecycle = ready();
        lifecycle.record_attached(1_000, false);
        lifecycle.record_attached(1_900, false);
        assert_eq!(lifecycle.advance(1_999, SILENT_MS), (None, ProcessSignal::Nothing));
        lifecycle.record_unknown();
        lifecycle.record_attached(2_000, false);
        assert_eq!(lifecycle.advance(2_999, SILENT_MS), (None, ProcessSignal::Nothing));
        assert_eq!(lifecycle.advance(3_000, SILENT_MS), (None, ProcessSignal::Kill));
        assert_eq!(lifecycle.end_events(), [LifecycleEvent::Gone]);
        // A worker that is drained detaches before its process ends.
        let mut lifecycle = ready();
        lifecycle.drain(60_000);
        lifecycle.record_attached(1_000, false);
        assert_eq!(lifecycle.advance(50_000, SILENT_MS), (None, ProcessSignal::Nothing));
    }
}
