//! Workers that are processes of this machine, as many as the scaler wants.
//!
//! ```text
//!            looks, 10 a second                actions
//!  tasks ──────────────────────► Conductor ───────────────► LocalWorkers ──► processes
//!    ▲                          (crate scale)  ◄───────────   start, SIGTERM, SIGKILL
//!    │                                           events            │
//!    └───────────────────────── each attaches by itself, ──────────┘
//!                               under the name it was given
//! ```
//!
//! A process is ready when a worker under its name stands among those of the scheduler, and not before: what starts and never attaches is ended and
//! counts as failed. It is sent away by SIGTERM, upon which it takes nothing new and ends when it has done what it holds; when its grace is over, its
//! whole process group is killed. One of the warm pool says over its standard input, which is a socket, that it is prepared, and is called by it; it attaches then. None is left behind: each ends when its standard input does, which it does with this process however that ends.
//!
//! Limits: [`WorkersLimits`]. How many workers, and why: `dunlin_scale`.

mod life;
mod local;
mod seen;
mod view;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dunlin_scale::{Conductor, Instance, Looked, Outlook, Phase, Policy, PolicyError, ScaleIn, ScaleOut};

pub use local::{LocalWorkers, WorkerCommand, WorkersLimits};
pub use seen::of_node;
pub use view::WorkersView;

/// How often the scheduler is looked at, and processes.
const LOOK: Duration = Duration::from_millis(100);
/// The scaler decides so often.
const SAMPLE_MS: u64 = 500;

/// A scheduler, and who works for it.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// What the scaler goes by.
    pub looked: Looked,
    /// Workers, and the names that they gave themselves.
    pub workers: Vec<(u64, String)>,
}

/// Why nobody is started.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// It makes no sense.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// There is no thread to be had.
    #[error("cannot start the thread that looks after workers")]
    Thread(#[source] io::Error),
}

/// Keeps workers, on a thread of its own, until it is stopped or dropped.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<Shared>,
    view: WorkersView,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_stopping: AtomicBool,
    /// How long those that hold something have for it then.
    grace_ms: AtomicU64,
    /// Processes that run, and those of them that work.
    processes: AtomicU64,
    ready: AtomicU64,
    /// Those that wait to be called.
    warm: AtomicU64,
    decided: Mutex<Decided>,
    outlook: Mutex<Option<Outlook>>,
}

/// The last that was decided, and how far each is. Times are of the thread that keeps the workers, from its start.
#[derive(Debug, Clone, Default)]
pub struct Decided {
    /// There are to be more; the oldest first.
    pub out: Vec<ScaleOut>,
    /// There are to be fewer; one for each process.
    pub inward: Vec<ScaleIn>,
}

/// So many of each kind are kept for whoever looks.
const DECIDED_MAX: usize = 16;

impl Workers {
    /// Starts as many as `policy` wants at least, then as many as it wants by what `look` sees; that is asked ten times a second, and
    /// says nothing where the scheduler cannot be seen.
    pub fn start(
        policy: Policy,
        command: WorkerCommand,
        limits: WorkersLimits,
        look: impl FnMut() -> Option<Seen> + Send + 'static,
    ) -> Result<Workers, WorkersError> {
        let (workers_min, workers_max) = (policy.workers_min, policy.workers_max);
        let provider = LocalWorkers::new(command, limits);
        let conductor = Conductor::new(policy, dunlin_scale::Limits::default(), provider, SAMPLE_MS)?;
        let shared = Arc::new(Shared::default());
        let kept = Arc::clone(&shared);
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_unix_ms = began.as_millis() as u64;
        let view = WorkersView { shared: Arc::clone(&shared), workers_min, workers_max, began_unix_ms };
        let thread = thread::Builder::new().name("dunlin-workers".to_owned());
        let thread = thread.spawn(move || Keeper::new(conductor, look, kept).run());
        Ok(Workers { shared, view, thread: Some(thread.map_err(WorkersError::Thread)?) })
    }

    /// Processes that run.
    pub fn processes(&self) -> u64 {
        self.shared.processes.load(Ordering::Relaxed)
    }

    /// Those that work.
    pub fn ready(&self) -> u64 {
        self.shared.ready.load(Ordering::Relaxed)
    }

    /// Those that are prepared, and wait to be called.
    pub fn warm(&self) -> u64 {
        self.shared.warm.load(Ordering::Relaxed)
    }

    /// For who looks on.
    pub fn view(&self) -> WorkersView {
        self.view.clone()
    }

    /// What was decided lately, and when each phase of it was over.
    pub fn decided(&self) -> Decided {
        self.shared.decided().clone()
    }

    /// Has all of them do what they hold, for so long at most, and end; waits for that.
    pub fn stop(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        self.shared.grace_ms.store(grace.as_millis() as u64, Ordering::Relaxed);
        self.shared.is_stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that looks after workers has failed");
        }
    }
}

impl Shared {
    fn decided(&self) -> MutexGuard<'_, Decided> {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outlook(&self) -> MutexGuard<'_, Option<Outlook>> {
        self.outlook.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

struct Keeper<L> {
    conductor: Conductor<LocalWorkers>,
    look: L,
    shared: Arc<Shared>,
    started: Instant,
}

impl<L: FnMut() -> Option<Seen>> Keeper<L> {
    fn new(conductor: Conductor<LocalWorkers>, look: L, shared: Arc<Shared>) -> Keeper<L> {
        Keeper { conductor, look, shared, started: Instant::now() }
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

    fn turn(&mut self, seen: Option<Seen>) {
        let now_ms = self.now_ms();
        let provider = self.conductor.provider();
        match seen {
            None => {
                provider.cannot_see();
                self.conductor.poll(now_ms);
            }
            Some(Seen { looked, workers }) => {
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
        *self.shared.decided() = Decided { out: last(decisions.out()), inward: last(decisions.inward()) };
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

/// The last of them, the oldest first.
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
