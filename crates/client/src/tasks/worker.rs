//! The worker library: functions for kinds of tasks, run on as many threads as there are slots.
//!
//! ```no_run
//! use dunlin_client::{Client, Options, Task, TaskFailed, Worker};
//!
//! let client = Client::connect("dunlin://localhost", Options::default())?;
//! Worker::new(&client)
//!     .handle("thumb", |task: Task| async move { Ok::<_, TaskFailed>(task.payload().len().to_string()) })
//!     .handle_blocking("sum", |task: &Task| Ok(task.payload().iter().map(|byte| u64::from(*byte)).sum::<u64>().to_string()))
//!     .slots(8)
//!     .run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::attachment::{Attachment, AttachmentLoad, WorkerOptions};
use super::error::TasksError;
use super::given::{Given, Used};
use crate::client::Client;
use crate::follow::thread_waker;

/// How soon a slot without a task notices that it is time to end.
const LOOK: Duration = Duration::from_millis(100);
/// How long a worker that ends waits until what it answered was heard of.
const FLUSH: Duration = Duration::from_secs(10);
/// Slots of one worker.
const SLOTS_MAX: u32 = 1_024;

type Function = Arc<dyn Fn(&Task, &Runner) -> Result<Vec<u8>, TaskFailed> + Send + Sync>;

/// A worker, before it runs.
pub struct Worker {
    client: Client,
    options: WorkerOptions,
    prefetch: u32,
    functions: HashMap<Vec<u8>, Function>,
    stop: WorkerStop,
}

/// Ends a worker that runs: it takes nothing new, finishes what it has, and returns. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct WorkerStop(Arc<AtomicBool>);

impl WorkerStop {
    /// Ends it.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// The flag behind it, for signal handlers.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Why a task failed. Any error becomes one, after which the task may be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFailed {
    why: String,
    retry: bool,
}

impl TaskFailed {
    /// It may be tried again.
    pub fn new(why: impl Into<String>) -> TaskFailed {
        TaskFailed { why: why.into(), retry: true }
    }

    /// It is a dead letter: to try again would be of no use.
    pub fn for_good(why: impl Into<String>) -> TaskFailed {
        TaskFailed { why: why.into(), retry: false }
    }
}

impl<E: std::error::Error> From<E> for TaskFailed {
    fn from(error: E) -> TaskFailed {
        TaskFailed::new(error.to_string())
    }
}

/// A task, as its function sees it.
#[derive(Debug, Clone)]
pub struct Task {
    given: Given,
    attachment: Arc<Attachment>,
}

impl Task {
    /// With what.
    pub fn payload(&self) -> &[u8] {
        self.given.payload()
    }

    /// All else that is known of it.
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// How far it has come, in thousandths, and in words.
    pub fn progress(&self, permille: u16, note: &str) {
        self.attachment.progress(&self.given, permille, note);
    }

    /// Its timeout begins anew.
    pub fn extend(&self) {
        self.attachment.extend(&self.given, None);
    }

    /// Whether it is to be stopped: it was cancelled, or it is not this worker's any more.
    pub fn is_stopped(&self) -> bool {
        self.given.is_stopped()
    }
}

/// Runs async functions to their end on a slot's own thread.
struct Runner {
    /// Of the program's runtime, where it has one.
    #[cfg(feature = "tokio")]
    handle: Option<tokio::runtime::Handle>,
}

impl Runner {
    fn of_this_thread() -> Runner {
        Runner {
            #[cfg(feature = "tokio")]
            handle: tokio::runtime::Handle::try_current().ok(),
        }
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        #[cfg(feature = "tokio")]
        if let Some(handle) = &self.handle {
            return handle.block_on(future);
        }
        let mut future = pin!(future);
        let waker = thread_waker();
        let mut cx = Context::from_waker(&waker);
        loop {
            match future.as_mut().poll(&mut cx) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl Worker {
    /// One that can do nothing yet.
    pub fn new(client: &Client) -> Worker {
        Worker {
            client: client.clone(),
            options: WorkerOptions::default(),
            prefetch: 0,
            functions: HashMap::new(),
            stop: WorkerStop::default(),
        }
    }

    /// Does tasks of a kind by an async function. Where the program has a tokio runtime it runs there; else on the slot's thread alone.
    pub fn handle<F, T, R>(self, kind: &str, function: F) -> Worker
    where
        F: Fn(Task) -> T + Send + Sync + 'static,
        T: Future<Output = Result<R, TaskFailed>>,
        R: Into<Vec<u8>>,
    {
        self.with(kind, Arc::new(move |task, runner| runner.run(function(task.clone())).map(Into::into)))
    }

    /// Does tasks of a kind by a function that may block.
    pub fn handle_blocking<F, R>(self, kind: &str, function: F) -> Worker
    where
        F: Fn(&Task) -> Result<R, TaskFailed> + Send + Sync + 'static,
        R: Into<Vec<u8>>,
    {
        self.with(kind, Arc::new(move |task, _| function(task).map(Into::into)))
    }

    fn with(mut self, kind: &str, function: Function) -> Worker {
        self.functions.insert(kind.as_bytes().to_vec(), function);
        self.options.kinds.push(kind.to_owned());
        self
    }

    /// Tasks at once; 1 if nothing is said.
    pub fn slots(mut self, slots: u32) -> Worker {
        self.options.slots = slots.clamp(1, SLOTS_MAX);
        self
    }

    /// Tasks that it is given ahead where more wait than there are workers, so that a slot has the next at once; 0 if nothing is said. Of use
    /// where tasks are short: what is given ahead waits for this worker, and its timeout runs.
    pub fn prefetch(mut self, tasks: u32) -> Worker {
        self.prefetch = tasks;
        self
    }

    /// A name, for people.
    pub fn name(mut self, name: &str) -> Worker {
        name.clone_into(&mut self.options.name);
        self
    }

    /// Serves this queue, and no others but those that are named likewise.
    pub fn queue(mut self, queue: &str) -> Worker {
        self.options.queues.push(queue.to_owned());
        self
    }

    /// It is dead when nobody heard of it for so long; 10 s if nothing is said.
    pub fn ttl(mut self, ttl: Duration) -> Worker {
        self.options.ttl = ttl;
        self
    }

    /// What it has: thousandths of a processor, bytes of memory.
    pub fn resources(mut self, cpu_milli: u32, memory_bytes: u64) -> Worker {
        (self.options.cpu_milli, self.options.memory_bytes) = (cpu_milli, memory_bytes);
        self
    }

    /// It has this, and is given tasks that need it.
    pub fn label(mut self, key: &str, value: &str) -> Worker {
        self.options.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Takes tasks of this tenant, and of no others but those that are named likewise.
    pub fn tenant(mut self, tenant: &str) -> Worker {
        self.options.tenants.push(tenant.to_owned());
        self
    }

    /// What ends it.
    pub fn stop_handle(&self) -> WorkerStop {
        self.stop.clone()
    }

    /// Ends when this flag is set, as by a signal.
    pub fn stop_when(mut self, flag: Arc<AtomicBool>) -> Worker {
        self.stop = WorkerStop(flag);
        self
    }

    /// Works until it is stopped: then it takes nothing new, finishes what it has, and gives what it did. An error when the cluster
    /// does not let it work.
    pub fn run(self) -> Result<AttachmentLoad, TasksError> {
        let Worker { client, options, prefetch, functions, stop } = self;
        let slots = options.slots;
        let attachment = client.tasks().attach_ahead(options, prefetch);
        let attachment = Arc::new(attachment.map_err(|error| TasksError::Ended(error.to_string()))?);
        let runner = Runner::of_this_thread();
        let slot = || work(&attachment, &functions, &runner, &stop);
        thread::scope(|scope| {
            for _ in 1..slots {
                scope.spawn(slot);
            }
            slot();
        });
        attachment.flush(FLUSH);
        match attachment.error() {
            Some(error) => Err(error),
            None => Ok(attachment.load()),
        }
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("options", &self.options).finish_non_exhaustive()
    }
}

/// One slot.
fn work(
    attachment: &Arc<Attachment>,
    functions: &HashMap<Vec<u8>, Function>,
    runner: &Runner,
    stop: &WorkerStop,
) {
    loop {
        if stop.is_set() {
            attachment.drain();
        }
        // By its own program, or by somebody who asked the cluster for it.
        if attachment.is_drained() {
            return;
        }
        match attachment.next(LOOK) {
            Ok(Some(given)) => run_one(attachment, given, functions, runner),
            Ok(None) => {}
            Err(_ended) => return,
        }
    }
}

fn run_one(
    attachment: &Arc<Attachment>,
    given: Given,
    functions: &HashMap<Vec<u8>, Function>,
    runner: &Runner,
) {
    let (began, cpu) = (Instant::now(), processor_time());
    let task = Task { given: given.clone(), attachment: Arc::clone(attachment) };
    let came = match functions.get(given.kind()) {
        Some(function) => catch_unwind(AssertUnwindSafe(|| function(&task, runner))),
        None => Ok(Err(TaskFailed::new("this worker cannot do that"))),
    };
    let cpu = processor_time().saturating_sub(cpu);
    let used = Used { run: began.elapsed(), cpu, memory_bytes: 0 };
    match came {
        Ok(Ok(result)) => attachment.complete(&given, &result, &used),
        Ok(Err(TaskFailed { why, retry })) => attachment.fail(&given, why.as_bytes(), retry, &used),
        Err(_panic) => attachment.fail(&given, b"its function panicked", true, &used),
    }
}

/// How long the processor has worked for this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
