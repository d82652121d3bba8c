//! Starts and ends worker processes on this machine. The autoscaler decides how many:
//!
//! ```text
//!            10 observations a second         actions
//!  tasks ──────────────────────► Conductor ───────────────► LocalWorkers ──► processes
//!    ▲                          (crate scale)  ◄───────────   start, SIGTERM, SIGKILL
//!    │                                           events            │
//!    └───────────────────────── each attaches by itself, ──────────┘
//!                               under the name it was given
//! ```
//!
//! A process is ready when a worker with its name is attached to the scheduler. If a process does not attach in time,
//! it is killed and counts as failed. To drain a process, this module sends SIGTERM: the worker then accepts no new
//! tasks, and ends when its tasks are done. If the worker still runs after the grace period, its process group is
//! killed.
//!
//! The standard input of each worker process is a socket, which closes when the node's process ends. The worker process
//! then ends too, so that none remains. Processes of the warm pool are started in advance: such a process writes to the
//! socket when it is prepared, and attaches only after this module has called it over the socket.
//!
//! Limits: [`WorkersLimits`]. The crate `dunlin_scale` decides how many workers run.

mod lifecycle;
mod local;
mod observed;
mod view;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dunlin_scale::{
    Autoscaler, ForecastStatus, InstanceId, InstancePhase, Policy, PolicyError, ScaleIn, ScaleOut,
    SchedulerSnapshot,
};

pub use local::{LocalWorkers, WorkerCommand, WorkersLimits};
pub use observed::node_load_reader;
pub use view::WorkersView;

/// Pause between two checks of the scheduler and of the worker processes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which the autoscaler decides, ms.
const SAMPLE_MS: u64 = 500;

/// The load of a task scheduler, on which the autoscaler bases its decisions, and the names of all workers.
#[derive(Debug, Clone, Default)]
pub struct SchedulerLoad {
    /// The load of the scheduler at one moment.
    pub snapshot: SchedulerSnapshot,
    /// Id and name of each worker that is attached.
    pub workers: Vec<(u64, String)>,
}

/// The reason why a node cannot start its workers.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// The scaling policy in the configuration is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The thread that starts and ends the workers could not be started.
    #[error("cannot start the workers' thread")]
    Thread(#[source] io::Error),
}

/// Controls the thread that starts and ends a node's worker processes. Dropping the value kills the processes and ends
/// the thread.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<WorkersState>,
    view: WorkersView,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct WorkersState {
    is_stopping: AtomicBool,
    /// How long the processes may take to end when the thread stops, ms.
    grace_ms: AtomicU64,
    /// Number of worker processes that run.
    processes: AtomicU64,
    /// Number of worker processes that are ready.
    ready: AtomicU64,
    /// Number of prepared processes in the warm pool.
    warm: AtomicU64,
    decisions: Mutex<ScalingDecisions>,
    forecast: Mutex<Option<ForecastStatus>>,
}

/// The autoscaler's last decisions to start and end workers. Their times are ms since the start of the autoscaler's
/// thread.
#[derive(Debug, Clone, Default)]
pub struct ScalingDecisions {
    /// The last decisions to start workers, oldest first.
    pub out: Vec<ScaleOut>,
    /// The last decisions to end workers, one for each process, oldest first.
    pub inward: Vec<ScaleIn>,
}

/// Number of decisions that are kept of each of the two kinds.
const DECISIONS_MAX: usize = 16;

impl Workers {
    /// Starts the policy's minimum number of workers. Later, starts and ends workers as the policy decides. Calls
    /// `read_load` ten times a second for the scheduler's load; `read_load` returns `None` if the scheduler cannot be
    /// read.
    pub fn start(
        policy: Policy,
        command: WorkerCommand,
        limits: WorkersLimits,
        read_load: impl FnMut() -> Option<SchedulerLoad> + Send + 'static,
    ) -> Result<Workers, WorkersError> {
        let (workers_min, workers_max) = (policy.workers_min, policy.workers_max);
        let provider = LocalWorkers::new(command, limits);
        let autoscaler = Autoscaler::new(policy, dunlin_scale::ScalerLimits::default(), provider, SAMPLE_MS)?;
        let shared = Arc::new(WorkersState::default());
        let thread_state = Arc::clone(&shared);
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_unix_ms = began.as_millis() as u64;
        let view = WorkersView { shared: Arc::clone(&shared), workers_min, workers_max, began_unix_ms };
        let thread = thread::Builder::new().name("dunlin-workers".to_owned());
        let thread = thread.spawn(move || WorkersThread::new(autoscaler, read_load, thread_state).run());
        Ok(Workers { shared, view, thread: Some(thread.map_err(WorkersError::Thread)?) })
    }

    /// Number of worker processes that run.
    pub fn processes(&self) -> u64 {
        self.shared.processes.load(Ordering::Relaxed)
    }

    /// Number of worker processes that are ready.
    pub fn ready(&self) -> u64 {
        self.shared.ready.load(Ordering::Relaxed)
    }

    /// Number of prepared processes in the warm pool.
    pub fn warm(&self) -> u64 {
        self.shared.warm.load(Ordering::Relaxed)
    }

    /// Returns a handle with which reports read the state of the workers.
    pub fn view(&self) -> WorkersView {
        self.view.clone()
    }

    /// The last scaling decisions, with the times of their phases.
    pub fn decisions(&self) -> ScalingDecisions {
        self.shared.decisions().clone()
    }

    /// Drains all workers and waits until their processes have ended. Kills the processes that still run after `grace`.
    pub fn stop(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        self.shared.grace_ms.store(grace.as_millis() as u64, Ordering::Relaxed);
        self.shared.is_stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the workers' thread has panicked");
        }
    }
}

impl WorkersState {
    fn decisions(&self) -> MutexGuard<'_, ScalingDecisions> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forecast(&self) -> MutexGuard<'_, Option<ForecastStatus>> {
        self.forecast.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

struct WorkersThread<L> {
    autoscaler: Autoscaler<LocalWorkers>,
    read_load: L,
    shared: Arc<WorkersState>,
    started: Instant,
}

impl<L: FnMut() -> Option<SchedulerLoad>> WorkersThread<L> {
    fn new(
        autoscaler: Autoscaler<LocalWorkers>,
        read_load: L,
        shared: Arc<WorkersState>,
    ) -> WorkersThread<L> {
        WorkersThread { autoscaler, read_load, shared, started: Instant::now() }
    }

    fn run(mut self) {
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            let load = (self.read_load)();
            self.step(load);
            thread::sleep(POLL_INTERVAL);
        }
        let grace_ms = self.shared.grace_ms.load(Ordering::Relaxed);
        let now_ms = self.now_ms();
        self.autoscaler.stop(now_ms, grace_ms);
        while !self.autoscaler.is_stopped() {
            let now_ms = self.now_ms();
            self.autoscaler.poll(now_ms);
            self.count();
            thread::sleep(POLL_INTERVAL / 10);
        }
    }

    fn step(&mut self, load: Option<SchedulerLoad>) {
        let now_ms = self.now_ms();
        let provider = self.autoscaler.provider();
        match load {
            None => {
                provider.mark_unknown();
                self.autoscaler.poll(now_ms);
            }
            Some(SchedulerLoad { snapshot, workers }) => {
                provider.update_attached(now_ms, workers.iter().map(|(_, name)| name.as_str()));
                let instances: Vec<(u64, InstanceId)> = workers
                    .iter()
                    .filter_map(|(worker, name)| Some((*worker, provider.instance_of(name)?)))
                    .collect();
                let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
                let instance_of = |worker: u64| {
                    instances.iter().find(|(known, _)| *known == worker).map(|(_, instance)| *instance)
                };
                self.autoscaler.tick(now_ms, unix_ms as u64, &snapshot, instance_of);
            }
        }
        self.count();
    }

    fn count(&mut self) {
        let fleet = self.autoscaler.scaler().fleet();
        self.shared.ready.store(u64::from(fleet.count(InstancePhase::Ready)), Ordering::Relaxed);
        self.shared.warm.store(u64::from(fleet.count(InstancePhase::Warm)), Ordering::Relaxed);
        self.shared.processes.store(self.autoscaler.provider().len() as u64, Ordering::Relaxed);
        let decisions = self.autoscaler.scaler().decisions();
        *self.shared.forecast() = self.autoscaler.scaler().forecast_status(self.now_ms());
        *self.shared.decisions() =
            ScalingDecisions { out: last(decisions.scale_outs()), inward: last(decisions.scale_ins()) };
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

/// Returns the last [`DECISIONS_MAX`] of the decisions, oldest first.
fn last<'a, D: Copy + 'a>(all: impl Iterator<Item = &'a D>) -> Vec<D> {
    let mut last = VecDeque::with_capacity(DECISIONS_MAX);
    for decision in all {
        if last.len() == DECISIONS_MAX {
            last.pop_front();
        }
        last.push_back(*decision);
    }
    last.into()
}
