//! The state machine of a worker process. Its inputs are the time and what is observed of the process. Its outputs are
//! events for the autoscaler and signals to the process:
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

/// The state of a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    /// The process was started or called. It must attach before `deadline_ms`.
    Starting {
        deadline_ms: u64,
    },
    /// The process was started for the warm pool. It must report before `deadline_ms` that it is prepared.
    Preparing {
        deadline_ms: u64,
    },
    /// The process is prepared, and waits in the warm pool until it is called.
    Warm,
    /// The process was not ready in time, and is being killed.
    Failing,
    Ready,
    Draining {
        deadline_ms: u64,
    },
    /// The process has nothing more to do. It was killed, or its grace period is over.
    Ending,
}

/// The lifecycle of one worker process: the state of the process, and since when no worker with its name has been
/// attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkerLifecycle {
    state: WorkerState,
    /// The time, ms, since which no worker with this process's name has been attached. `None` if such a worker is
    /// attached, or if it is unknown whether one is attached.
    detached_since_ms: Option<u64>,
}

/// An event of a worker process that is reported to the autoscaler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LifecycleEvent {
    Ready,
    Prepared,
    Failed,
    Drained,
    Gone,
}

/// A signal that a worker process must receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessSignal {
    Nothing,
    /// SIGTERM to the process, which asks the worker to end.
    Terminate,
    /// SIGKILL to the whole process group.
    Kill,
}

impl WorkerLifecycle {
    pub(super) fn new(deadline_ms: u64) -> WorkerLifecycle {
        WorkerLifecycle { state: WorkerState::Starting { deadline_ms }, detached_since_ms: None }
    }

    /// The lifecycle of a process that starts for the warm pool. The process must be prepared before `deadline_ms`.
    pub(super) fn for_pool(deadline_ms: u64) -> WorkerLifecycle {
        WorkerLifecycle { state: WorkerState::Preparing { deadline_ms }, detached_since_ms: None }
    }

    /// Whether the process has been started for the warm pool, but has not reported yet that it is prepared.
    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.state, WorkerState::Preparing { .. })
    }

    /// Records that the process is prepared.
    pub(super) fn set_prepared(&mut self) {
        self.state = WorkerState::Warm;
    }

    /// Remembers that a process of the warm pool is called, and must attach before `deadline_ms`. Returns whether the
    /// process was in the warm pool.
    pub(super) fn wake(&mut self, deadline_ms: u64) -> bool {
        let is_warm = self.state == WorkerState::Warm;
        if is_warm {
            self.state = WorkerState::Starting { deadline_ms };
        }
        is_warm
    }

    /// Remembers whether a worker with this process's name is attached now. Returns an event if the state has changed.
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
            // The process attached before it was called, so it could receive tasks too early.
            WorkerState::Preparing { .. } | WorkerState::Warm => {
                self.state = WorkerState::Ending;
                Some(LifecycleEvent::Failed)
            }
            _ => None,
        }
    }

    /// Remembers that it is unknown which workers are attached.
    pub(super) fn record_unknown(&mut self) {
        self.detached_since_ms = None;
    }

    /// Checks the deadlines, and whether the worker has been detached for `silent_ms_max`. Returns the event, if there
    /// is one, and the signal for the process.
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
            // If a process is drained a second time, the earlier deadline applies.
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

    /// The events to report when the process has ended in its present state.
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
    fn worker_that_ends_or_stalls_before_attaching_counts_as_failed() {
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
    fn warm_worker_may_wait_indefinitely_to_be_woken() {
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
    fn warm_worker_fails_if_it_attaches_before_it_is_woken() {
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
        // A draining worker detaches before its process ends. The process must not be killed for being detached.
        let mut lifecycle = ready();
        lifecycle.drain(60_000);
        lifecycle.record_attached(1_000, false);
        assert_eq!(lifecycle.advance(50_000, SILENT_MS), (None, ProcessSignal::Nothing));
    }
}
