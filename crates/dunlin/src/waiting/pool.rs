//! A pool of threads for operations that block.
//!
//! Limits: a pool has a maximum number of threads, by default [`THREADS_MAX`]. Each of them ends after [`IDLE`]
//! without work. Further operations wait in a queue.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

/// Maximum number of threads for operations that block. More threads would only wait for the same cluster or disk.
const THREADS_MAX: usize = 64;
/// How long a thread without work stays alive.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads for operations that block.
#[derive(Debug)]
pub(crate) struct Waiters {
    work: Arc<Work>,
    threads_max: usize,
}

impl Default for Waiters {
    fn default() -> Waiters {
        Waiters::of(THREADS_MAX)
    }
}

#[derive(Default)]
struct Work {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    ended: bool,
}

impl Waiters {
    pub(crate) fn of(threads_max: usize) -> Waiters {
        Waiters { work: Arc::default(), threads_max }
    }

    /// Runs `job` on a thread of the pool. If the pool has no thread and none can be started, `job` is dropped.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.work.lock();
        state.jobs.push_back(Box::new(job));
        if state.jobs.len() <= state.idle || state.threads >= self.threads_max {
            drop(state);
            return self.work.more.notify_one();
        }
        state.threads += 1;
        drop(state);
        let work = Arc::clone(&self.work);
        let started = thread::Builder::new().name("dunlin-waiting".to_owned()).spawn(move || work.run_jobs());
        if started.is_err() {
            let mut state = self.work.lock();
            state.threads -= 1;
            if state.threads == 0 {
                let jobs = std::mem::take(&mut state.jobs);
                drop(state);
                drop(jobs);
            }
        }
    }

    /// Runs `run` on a thread of the pool. Returns a receiver of the result. The channel is closed if `run` could not
    /// be run.
    pub(crate) fn run_with_result<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (send, receive) = oneshot::channel();
        self.run(move || drop(send.send(run())));
        receive
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        self.work.lock().ended = true;
        self.work.more.notify_all();
    }
}

impl Work {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_jobs(&self) {
        let _running = RunningThread(self);
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
                continue;
            }
            if state.ended {
                return;
            }
            state.idle += 1;
            let waited = self.more.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            state.idle -= 1;
            if waited.1.timed_out() && state.jobs.is_empty() {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Work")
    }
}

/// A running thread of the pool. Dropping the value, even after a panic, removes the thread from the count.
struct RunningThread<'a>(&'a Work);

impl Drop for RunningThread<'_> {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
    }
}
