//! The worker library. A program registers a function for each kind of task, and the worker calls these functions on
//! one thread for each slot.

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

use super::assigned::{AssignedTask, TaskUsage};
use super::attachment::{Attachment, AttachmentLoad, WorkerOptions};
use super::error::TasksError;
use crate::client::Client;
use crate::follow::thread_waker;

/// The interval at which a slot without a task checks whether the worker has to end.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a worker that ends waits for the cluster's responses to its results.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of slots of one worker.
const SLOTS_MAX: u32 = 1_024;

type Function = Arc<dyn Fn(&Task, &Runner) -> Result<Vec<u8>, TaskFailure> + Send + Sync>;

/// A worker. For each task that it receives, it calls the function for the kind of the task.
pub struct Worker {
    client: Client,
    options: WorkerOptions,
    prefetch: u32,
    functions: HashMap<Vec<u8>, Function>,
    stop: WorkerStopHandle,
}

/// A handle that stops a running worker. Before the worker ends, it finishes the tasks that it holds. Clones stop the
/// same worker.
#[derive(Debug, Clone, Default)]
pub struct WorkerStopHandle(Arc<AtomicBool>);

impl WorkerStopHandle {
    /// Stops the worker.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns the flag that stops the worker. A signal handler, for example, can set the flag.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The error that the function for a task returns. Errors of other types are converted to this type, as failures that
/// allow another attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFailure {
    why: String,
    retry: bool,
}

impl TaskFailure {
    /// Creates a failure that allows another attempt.
    pub fn new(why: impl Into<String>) -> TaskFailure {
        TaskFailure { why: why.into(), retry: true }
    }

    /// Creates a failure that allows no other attempt, so that the task becomes a dead letter.
    pub fn for_good(why: impl Into<String>) -> TaskFailure {
        TaskFailure { why: why.into(), retry: false }
    }
}

impl<E: std::error::Error> From<E> for TaskFailure {
    fn from(error: E) -> TaskFailure {
        TaskFailure::new(error.to_string())
    }
}

/// A task, as the worker passes it to the function for the task's kind.
#[derive(Debug, Clone)]
pub struct Task {
    assigned: AssignedTask,
    attachment: Arc<Attachment>,
}

impl Task {
    /// The task's input, as its submitter stated it.
    pub fn payload(&self) -> &[u8] {
        self.assigned.payload()
    }

    /// The assigned task with all its values.
    pub fn assigned(&self) -> &AssignedTask {
        &self.assigned
    }

    /// Reports the progress of the task: a number of thousandths, and a note.
    pub fn progress(&self, permille: u16, note: &str) {
        self.attachment.progress(&self.assigned, permille, note);
    }

    /// Restarts the timeout of the task.
    pub fn extend(&self) {
        self.attachment.extend(&self.assigned, None);
    }

    /// Whether the task has to stop, because it was cancelled or went to another worker.
    pub fn is_stopped(&self) -> bool {
        self.assigned.is_stopped()
    }
}

/// Runs async functions to their end, on the thread of a slot.
struct Runner {
    /// The program's tokio runtime, if it has one.
    #[cfg(feature = "tokio")]
    handle: Option<tokio::runtime::Handle>,
}

impl Runner {
    fn current() -> Runner {
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
    /// Creates a worker without functions. [`handle`](Worker::handle) and [`handle_blocking`](Worker::handle_blocking)
    /// add them.
    pub fn new(client: &Client) -> Worker {
        Worker {
            client: client.clone(),
            options: WorkerOptions::default(),
            prefetch: 0,
            functions: HashMap::new(),
            stop: WorkerStopHandle::default(),
        }
    }

    /// Sets the async function that runs the tasks of a kind. If the program has a tokio runtime, the function runs on
    /// this runtime, otherwise on the thread of the slot.
    pub fn handle<F, T, R>(self, kind: &str, function: F) -> Worker
    where
        F: Fn(Task) -> T + Send + Sync + 'static,
        T: Future<Output = Result<R, TaskFailure>>,
        R: Into<Vec<u8>>,
    {
        self.with(kind, Arc::new(move |task, runner| runner.run(function(task.clone())).map(Into::into)))
    }

    /// Sets the function that runs the tasks of a kind. The function may block its thread.
    pub fn handle_blocking<F, R>(self, kind: &str, function: F) -> Worker
    where
        F: Fn(&Task) -> Result<R, TaskFailure> + Send + Sync + 'static,
        R: Into<Vec<u8>>,
    {
        self.with(kind, Arc::new(move |task, _| function(task).map(Into::into)))
    }

    fn with(mut self, kind: &str, function: Function) -> Worker {
        self.functions.insert(kind.as_bytes().to_vec(), function);
        self.options.kinds.push(kind.to_owned());
        self
    }

    /// Sets how many tasks run at the same time; 1 by default.
    pub fn slots(mut self, slots: u32) -> Worker {
        self.options.slots = slots.clamp(1, SLOTS_MAX);
        self
    }

    /// Sets how many tasks the worker may hold in addition to those that run, so that a free slot has its next task at
    /// once; 0 by default. This is useful only for short tasks: a task that waits at this worker cannot start
    /// elsewhere, and its timeout has already begun.
    pub fn prefetch(mut self, tasks: u32) -> Worker {
        self.prefetch = tasks;
        self
    }

    /// Sets the name of the worker, as operators see it.
    pub fn name(mut self, name: &str) -> Worker {
        name.clone_into(&mut self.options.name);
        self
    }

    /// Makes the worker serve `queue`. Without any call of this method, the worker serves all queues.
    pub fn queue(mut self, queue: &str) -> Worker {
        self.options.queues.push(queue.to_owned());
        self
    }

    /// Sets the time to live of the worker's lease; 10 s by default. If the worker does not renew the lease for this
    /// time, the worker counts as dead.
    pub fn ttl(mut self, ttl: Duration) -> Worker {
        self.options.ttl = ttl;
        self
    }

    /// States the worker's resources: thousandths of a processor, and bytes of memory.
    pub fn resources(mut self, cpu_milli: u32, memory_bytes: u64) -> Worker {
        (self.options.cpu_milli, self.options.memory_bytes) = (cpu_milli, memory_bytes);
        self
    }

    /// Adds a label. A task may require labels.
    pub fn label(mut self, key: &str, value: &str) -> Worker {
        self.options.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Makes the worker take tasks of `tenant`. Without any call of this method, the worker takes tasks of all tenants.
    pub fn tenant(mut self, tenant: &str) -> Worker {
        self.options.tenants.push(tenant.to_owned());
        self
    }

    /// Returns a handle that stops the worker.
    pub fn stop_handle(&self) -> WorkerStopHandle {
        self.stop.clone()
    }

    /// Makes the worker stop when `flag` is set. A signal handler, for example, can set the flag.
    pub fn stop_when(mut self, flag: Arc<AtomicBool>) -> Worker {
        self.stop = WorkerStopHandle(flag);
        self
    }

    /// Runs the worker until it is stopped and has finished the tasks that it holds. Returns the counts of its tasks.
    /// Fails if the cluster refuses the worker.
    pub fn run(self) -> Result<AttachmentLoad, TasksError> {
        let Worker { client, options, prefetch, functions, stop } = self;
        let slots = options.slots;
        let attachment = client.tasks().attach_ahead(options, prefetch);
        let attachment = Arc::new(attachment.map_err(|error| TasksError::Ended(error.to_string()))?);
        let runner = Runner::current();
        let slot = || run_slot(&attachment, &functions, &runner, &stop);
        thread::scope(|scope| {
            for _ in 1..slots {
                scope.spawn(slot);
            }
            slot();
        });
        attachment.flush(FLUSH_TIMEOUT);
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

fn run_slot(
    attachment: &Arc<Attachment>,
    functions: &HashMap<Vec<u8>, Function>,
    runner: &Runner,
    stop: &WorkerStopHandle,
) {
    loop {
        if stop.is_set() {
            attachment.drain();
        }
        // The program or an operator has stopped the worker, and all its tasks are finished.
        if attachment.is_drained() {
            return;
        }
        match attachment.next(STOP_CHECK_INTERVAL) {
            Ok(Some(assigned)) => run_task(attachment, assigned, functions, runner),
            Ok(None) => {}
            Err(_ended) => return,
        }
    }
}

fn run_task(
    attachment: &Arc<Attachment>,
    assigned: AssignedTask,
    functions: &HashMap<Vec<u8>, Function>,
    runner: &Runner,
) {
    let (began, cpu) = (Instant::now(), processor_time());
    let task = Task { assigned: assigned.clone(), attachment: Arc::clone(attachment) };
    let outcome = match functions.get(assigned.kind()) {
        Some(function) => catch_unwind(AssertUnwindSafe(|| function(&task, runner))),
        None => Ok(Err(TaskFailure::new("this worker has no function for the task's kind"))),
    };
    let cpu = processor_time().saturating_sub(cpu);
    let used = TaskUsage { run: began.elapsed(), cpu, memory_bytes: 0 };
    match outcome {
        Ok(Ok(result)) => attachment.complete(&assigned, &result, &used),
        Ok(Err(TaskFailure { why, retry })) => attachment.fail(&assigned, why.as_bytes(), retry, &used),
        Err(_panic) => attachment.fail(&assigned, b"the task's function panicked", true, &used),
    }
}

/// The processor time that the calling thread has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // `unsigned_abs` only changes the types, because neither value is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
