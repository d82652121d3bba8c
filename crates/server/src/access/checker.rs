//! Threads that check passwords, so that no door waits for one: each takes tens of milliseconds and 19 MiB.
//!
//! Limits: `access.logins_at_once` threads, started when they are first needed; `access.logins_waiting_max` that wait
//! for one.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use super::AccessLimits;

type Job = Box<dyn FnOnce() + Send>;

/// See the module.
#[derive(Debug)]
pub(super) struct Checker {
    limits: AccessLimits,
    queue: OnceLock<SyncSender<Job>>,
}

/// As many wait as may.
#[derive(Debug)]
pub(super) struct Busy;

impl Checker {
    pub(super) fn new(limits: AccessLimits) -> Checker {
        Checker { limits, queue: OnceLock::new() }
    }

    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Busy> {
        match self.queue.get_or_init(|| start(self.limits)).try_send(Box::new(job)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(Busy),
        }
    }
}

/// The threads end with the sender.
fn start(limits: AccessLimits) -> SyncSender<Job> {
    let (send, receive) = sync_channel(limits.logins_waiting_max as usize);
    let receive = Arc::new(Mutex::new(receive));
    for number in 0..limits.logins_at_once.max(1) {
        let receive = Arc::clone(&receive);
        let started =
            thread::Builder::new().name(format!("dunlin-login-{number}")).spawn(move || work(&receive));
        if let Err(error) = started {
            tracing::error!(%error, "cannot start a thread that checks passwords");
        }
    }
    send
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        job();
    }
}
