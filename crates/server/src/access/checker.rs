//! Verifies passwords on threads of its own, because a verification takes tens of milliseconds and 19 MiB.
//!
//! The threads serve the client addresses in turn, one job for each. Many jobs of one address therefore delay the job
//! of another address by only one verification.
//!
//! When the queue is full, a new job normally takes the place of the newest job of the address with the most queued
//! jobs. If that address has at most one job more than the new job's address, the new job is refused instead.
//!
//! Limits: `access.logins_at_once` threads, which start with the first job; `access.logins_waiting_max` queued jobs.
//! IPv6 addresses with the same first 64 bits count as one address.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::AccessLimits;
use super::throttle::{ClientIp, network};

type Job = Box<dyn FnOnce(CheckDecision) + Send>;

/// The checker's decision on whether a job verifies its password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckDecision {
    /// The job must verify its password now.
    Check,
    /// The job must refuse the login: the queue has no room for it, or no thread could be started.
    Rejected,
}

/// The threads that verify passwords, and the queue from which they take jobs.
#[derive(Debug)]
pub(super) struct Checker {
    limits: AccessLimits,
    queue: Arc<Queue>,
    /// Number of threads that were started.
    threads: Mutex<u32>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<FairQueue<Job>>,
    job_added: Condvar,
}

/// The queued jobs of each address, and the order in which the addresses are served.
struct FairQueue<T> {
    by_address: HashMap<ClientIp, VecDeque<T>>,
    order: VecDeque<ClientIp>,
    count: usize,
    is_closed: bool,
}

impl Checker {
    pub(super) fn new(limits: AccessLimits) -> Checker {
        Checker { limits, queue: Arc::default(), threads: Mutex::default() }
    }

    /// Queues `job`. A thread of the checker later calls `job` with [`CheckDecision::Check`]. If the queue has no room
    /// or no thread can be started, `job` is called with [`CheckDecision::Rejected`] instead, on any thread.
    pub(super) fn run(&self, from: ClientIp, job: impl FnOnce(CheckDecision) + Send + 'static) {
        if !self.has_threads() {
            return job(CheckDecision::Rejected);
        }
        let rejected =
            self.queue.lock().add(network(from), Box::new(job), self.limits.logins_waiting_max as usize);
        self.queue.job_added.notify_one();
        // The queue must not be locked during this call, because the job may call `run`.
        if let Some(job) = rejected {
            job(CheckDecision::Rejected);
        }
    }

    /// Starts the threads at the first call. Returns false if the system could not start any.
    fn has_threads(&self) -> bool {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if *threads == 0 {
            *threads = start(self.limits, &self.queue);
        }
        *threads > 0
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.queue.lock().is_closed = true;
        self.queue.job_added.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, FairQueue<Job>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next job; returns `None` after the checker was dropped.
    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some(job) = waiting.next() {
                return Some(job);
            }
            waiting = self.job_added.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> FairQueue<T> {
    /// Queues a job behind the other jobs of its address. If the queue is full, returns the job that loses its place:
    /// an older job or the new one.
    fn add(&mut self, from: ClientIp, job: T, waiting_max: usize) -> Option<T> {
        let mut rejected = None;
        if self.count >= waiting_max {
            let own = self.by_address.get(&from).map_or(0, VecDeque::len);
            let longest = self
                .by_address
                .iter()
                .max_by_key(|(_, jobs)| jobs.len())
                .map(|(from, jobs)| (*from, jobs.len()));
            match longest {
                Some((other, length)) if length > own + 1 => rejected = self.take(other, VecDeque::pop_back),
                _ => return Some(job),
            }
        }
        let jobs = self.by_address.entry(from).or_default();
        if jobs.is_empty() {
            self.order.push_back(from);
        }
        jobs.push_back(job);
        self.count += 1;
        rejected
    }

    fn next(&mut self) -> Option<T> {
        let from = self.order.pop_front()?;
        let job = self.take(from, VecDeque::pop_front);
        if self.by_address.contains_key(&from) {
            self.order.push_back(from);
        }
        job
    }

    /// Removes and returns the job that `pop` selects among the jobs of the address. If no job of the address remains,
    /// also removes the address from the order in which addresses are served.
    fn take(&mut self, from: ClientIp, pop: impl Fn(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        let jobs = self.by_address.get_mut(&from)?;
        let job = pop(jobs);
        self.count -= usize::from(job.is_some());
        if jobs.is_empty() {
            self.by_address.remove(&from);
            self.order.retain(|other| *other != from);
        }
        job
    }
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { by_address: HashMap::new(), order: VecDeque::new(), count: 0, is_closed: false }
    }
}

impl<T> std::fmt::Debug for FairQueue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FairQueue")
            .field("addresses", &self.by_address.len())
            .field("count", &self.count)
            .finish()
    }
}

/// Starts the checker's threads, and returns how many were started. The threads end when the checker is dropped.
fn start(limits: AccessLimits, queue: &Arc<Queue>) -> u32 {
    let mut started = 0;
    for number in 0..limits.logins_at_once.max(1) {
        let queue = Arc::clone(queue);
        let work = move || {
            while let Some(job) = queue.next() {
                job(CheckDecision::Check);
            }
        };
        match thread::Builder::new().name(format!("dunlin-login-{number}")).spawn(work) {
            Ok(_) => started += 1,
            Err(error) => tracing::error!(%error, "cannot start a thread that checks passwords"),
        }
    }
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> ClientIp {
        Some(([10, 0, 0, last], 0).into()).map(|address: std::net::SocketAddr| address.ip())
    }

    #[test]
    fn login_checks_alternate_between_client_addresses() {
        let mut queue = FairQueue::default();
        for (from, job) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")] {
            assert_eq!(queue.add(address(from), job, 100), None);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(order, ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert_eq!((queue.count, queue.by_address.len(), queue.order.len()), (0, 0, 0));
    }

    #[test]
    fn full_login_queue_drops_a_login_from_the_busiest_address() {
        let mut queue = FairQueue::default();
        for job in 0..4 {
            assert_eq!(queue.add(address(1), job, 4), None);
        }
        assert_eq!(queue.add(address(1), 4, 4), Some(4), "the flood itself is rejected");
        assert_eq!(queue.add(address(2), 10, 4), Some(3));
        assert_eq!(queue.add(address(2), 11, 4), Some(2));
        assert_eq!(queue.add(address(2), 12, 4), Some(12), "both have as many");
        let order: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(order, [0, 10, 1, 11]);
    }
}
