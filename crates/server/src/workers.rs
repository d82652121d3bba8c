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
//! A process is ready when a worker of its name is attached to the scheduler. A process that does not attach in time
//! is killed and counts as failed. To drain a process, this module sends SIGTERM: the worker accepts nothing new and
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
    Autoscaler, ForecastStatus, Instance, Phase, Policy, PolicyError, ScaleIn, ScaleOut, SchedulerSnapshot,
};

pub use local::{LocalWorkers, WorkerCommand, WorkersLimits};
pub use observed::of_node;
pub use view::WorkersView;

/// Interval of the checks of the scheduler and of the processes.
const LOOK: Duration = Duration::from_millis(100);
/// Interval of the autoscaler's decisions.
const SAMPLE_MS: u64 = 500;

/// The load of a task scheduler, from which the autoscaler decides, and the names of all workers.
#[derive(Debug, Clone, Default)]
pub struct SchedulerLoad {
    /// The autoscaler's input.
    pub looked: SchedulerSnapshot,
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

/// The thread that starts and ends a node's worker processes. Dropping the handle ends it.
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
    /// Number of running processes. The next field counts those that are ready.
    processes: AtomicU64,
    ready: AtomicU64,
    /// Number of processes in the warm pool.
    warm: AtomicU64,
    decided: Mutex<ScalingDecisions>,
    outlook: Mutex<Option<ForecastStatus>>,
}

/// The autoscaler's last decisions to start and end workers. Times count from the start of its thread.
#[derive(Debug, Clone, Default)]
pub struct ScalingDecisions {
    /// Decisions to start workers, oldest first.
    pub out: Vec<ScaleOut>,
    /// Decisions to end workers, one per process.
    pub inward: Vec<ScaleIn>,
}

/// Maximum number of decisions of each kind that are kept.
const DECIDED_MAX: usize = 16;

impl Workers {
    /// Starts the policy's minimum number of workers, and later as many as the policy decides from the results of
    /// `look`. `look` is called ten times a second, and returns `None` if the scheduler cannot be read.
    pub fn start(
        policy: Policy,
        command: WorkerCommand,
        limits: WorkersLimits,
        look: impl FnMut() -> Option<SchedulerLoad> + Send + 'static,
    ) -> Result<Workers, WorkersError> {
        let (workers_min, workers_max) = (policy.workers_min, policy.workers_max);
        let provider = LocalWorkers::new(command, limits);
        let conductor = Autoscaler::new(policy, dunlin_scale::ScalerLimits::default(), provider, SAMPLE_MS)?;
        let shared = Arc::new(WorkersState::default());
        let kept = Arc::clone(&shared);
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_unix_ms = began.as_millis() as u64;
        let view = WorkersView { shared: Arc::clone(&shared), workers_min, workers_max, began_unix_ms };
        let thread = thread::Builder::new().name("dunlin-workers".to_owned());
        let thread = thread.spawn(move || WorkersThread::new(conductor, look, kept).run());
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
    pub fn decided(&self) -> ScalingDecisions {
        self.shared.decided().clone()
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
    fn decided(&self) -> MutexGuard<'_, ScalingDecisions> {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outlook(&self) -> MutexGuard<'_, Option<ForecastStatus>> {
        self.outlook.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

struct WorkersThread<L> {
    conductor: Autoscaler<LocalWorkers>,
    look: L,
    shared: Arc<WorkersState>,
    started: Instant,
}

impl<L: FnMut() -> Option<SchedulerLoad>> WorkersThread<L> {
    fn new(conductor: Autoscaler<LocalWorkers>, look: L, shared: Arc<WorkersState>) -> WorkersThread<L> {
        WorkersThread { conductor, look, shared, started: Instant::now() }
    }

    fn run(mut self) {
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            let seen = (self.look)();
            self.turn(seen);
            thread::sleep(LOOK);
        }
        let grace_ms = self.shared.grace_ms.load(Ordering::Relaxed);
        let now_ms = self.now_ms();
        self.conductor.stop(now_ms, grace_ms);
        while !self.conductor.is_over() {
            let now_ms = self.now_ms();
            self.conductor.poll(now_ms);
            self.count();
            thread::sleep(LOOK / 10);
        }
    }

    fn turn(&mut self, seen: Option<SchedulerLoad>) {
        let now_ms = self.now_ms();
        let provider = self.conductor.provider();
        match seen {
            None => {
                provider.cannot_see();
                self.conductor.poll(now_ms);
            }
            Some(SchedulerLoad { looked, workers }) => {
                provider.attached(now_ms, workers.iter().map(|(_, name)| name.as_str()));
                let instances: Vec<(u64, Instance)> = workers
                    .iter()
                    .filter_map(|(worker, name)| Some((*worker, provider.instance_of(name)?)))
                    .collect();
                let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
                let instance_of = |worker: u64| {
                    instances.iter().find(|(known, _)| *known == worker).map(|(_, instance)| *instance)
                };
                self.conductor.look(now_ms, unix_ms as u64, &looked, instance_of);
            }
        }
        self.count();
    }

    fn count(&mut self) {
        let fleet = self.conductor.scaler().fleet();
        self.shared.ready.store(u64::from(fleet.count(Phase::Ready)), Ordering::Relaxed);
        self.shared.warm.store(u64::from(fleet.count(Phase::Warm)), Ordering::Relaxed);
        self.shared.processes.store(self.conductor.provider().len() as u64, Ordering::Relaxed);
        let decisions = self.conductor.scaler().decisions();
        *self.shared.outlook() = self.conductor.scaler().outlook(self.now_ms());
        *self.shared.decided() =
            ScalingDecisions { out: last(decisions.out()), inward: last(decisions.inward()) };
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

/// The last [`DECIDED_MAX`] decisions, oldest first.
fn last<'a, D: Copy + 'a>(all: impl Iterator<Item = &'a D>) -> Vec<D> {
    let mut last = VecDeque::with_capacity(DECIDED_MAX);
    for decision in all {
        if last.len() == DECIDED_MAX {
            last.pop_front();
        }
        last.push_back(*decision);
    }
    last.into()
}
