//! Runs worker processes on this machine, as many as the autoscaler decides.
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
//! A process is ready when a worker of its name is attached to the scheduler. A process that does not attach in time is
//! killed and counts as failed. To drain a process, this module sends SIGTERM: the worker accepts no new tasks, and
//! ends after its tasks. After the grace period, its process group is killed.
//!
//! Standard input of a process is a socket. A process of the warm pool writes to the socket when it is prepared. It
//! attaches when this module calls it over the socket. Every process ends when its standard input closes, so that no
//! worker process outlives this process.
//!
//! Limits: [`WorkersLimits`]. `dunlin_scale` decides the number of workers.

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

/// Interval of the checks of the scheduler and of the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of the autoscaler's decisions.
const SAMPLE_MS: u64 = 500;

/// The load of a task scheduler, on which the autoscaler bases its decisions, and the names of all workers.
#[derive(Debug, Clone, Default)]
pub struct SchedulerLoad {
    /// The autoscaler's input.
    pub snapshot: SchedulerSnapshot,
    /// The id and name of each attached worker.
    pub workers: Vec<(u64, String)>,
}

/// The reason why a node could not start its workers.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// The scaling policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The thread that manages the workers could not be started.
    #[error("cannot start the workers' thread")]
    Thread(#[source] io::Error),
}

/// The handle of the thread that starts and ends a node's worker processes. Dropping the handle ends the thread.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<WorkersState>,
    view: WorkersView,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct WorkersState {
    is_stopping: AtomicBool,
    /// The grace period of the stop, ms.
    grace_ms: AtomicU64,
    /// Number of running processes.
    processes: AtomicU64,
    /// Number of processes that are ready.
    ready: AtomicU64,
    /// Number of processes in the warm pool.
    warm: AtomicU64,
    decisions: Mutex<ScalingDecisions>,
    forecast: Mutex<Option<ForecastStatus>>,
}

/// The autoscaler's last decisions to start and end workers. Times count from the start of the autoscaler's thread.
#[derive(Debug, Clone, Default)]
pub struct ScalingDecisions {
    /// Decisions to start workers, oldest first.
    pub out: Vec<ScaleOut>,
    /// Decisions to end workers, one per process.
    pub inward: Vec<ScaleIn>,
}

/// Maximum number of decisions of each kind that are kept.
const DECISIONS_MAX: usize = 16;

impl Workers {
    /// Starts the policy's minimum number of workers, and later as many as the policy decides from the results of
    /// `read_load`. `read_load` is called ten times a second, and returns `None` if the scheduler cannot be read.
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

    /// Number of running processes.
    pub fn processes(&self) -> u64 {
        self.shared.processes.load(Ordering::Relaxed)
    }

    /// Number of processes that are ready.
    pub fn ready(&self) -> u64 {
        self.shared.ready.load(Ordering::Relaxed)
    }

    /// Number of processes in the warm pool that are prepared.
    pub fn warm(&self) -> u64 {
        self.shared.warm.load(Ordering::Relaxed)
    }

    /// A view of the workers, for reports.
    pub fn view(&self) -> WorkersView {
        self.view.clone()
    }

    /// The recent scaling decisions, with the times of their phases.
    pub fn decisions(&self) -> ScalingDecisions {
        self.shared.decisions().clone()
    }

    /// Drains all workers, and waits until they have ended. After `grace`, kills those that still run.
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

/// The last [`DECISIONS_MAX`] decisions, oldest first.
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
