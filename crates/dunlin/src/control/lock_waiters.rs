//! Notifies callers at this node that wait for locks.
//!
//! Invariant: each caller receives exactly one outcome: the lock's token, a refusal, or a closed channel. After a
//! closed channel, the caller reads the state again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_control::{ControlRefusal, ControlState, Key};
use tokio::sync::oneshot;

/// The outcome of a wait for a lock: the lock's token, or the reason why the wait failed.
pub(super) type LockOutcome = Result<u64, ControlRefusal>;

/// The callers at this node that wait for locks. The map's key is a lease and the name of a lock.
#[derive(Debug, Default)]
pub(super) struct LockWaiters(Mutex<Waiters>);

type Waiters = BTreeMap<(u64, Key), Vec<oneshot::Sender<LockOutcome>>>;

impl LockWaiters {
    /// Registers a caller whose lease waits for the lock. After this call, the caller has to check in the state whether
    /// its lease still waits, because an outcome from before the call is not sent.
    pub(super) fn register(&self, name: &[u8], lease: u64) -> oneshot::Receiver<LockOutcome> {
        let (notify, outcome) = oneshot::channel();
        let mut waiters = self.waiters();
        let senders = waiters.entry((lease, Key::from_slice(name))).or_default();
        senders.retain(|waiter| !waiter.is_closed());
        senders.push(notify);
        outcome
    }

    /// Removes the callers that waited for this lock under this lease, and whose receivers were dropped.
    pub(super) fn unregister(&self, name: &[u8], lease: u64) {
        let mut waiters = self.waiters();
        let key = (lease, Key::from_slice(name));
        if let Some(senders) = waiters.get_mut(&key) {
            senders.retain(|waiter| !waiter.is_closed());
            if senders.is_empty() {
                waiters.remove(&key);
            }
        }
    }

    pub(super) fn notify_granted(&self, name: &[u8], lease: u64, token: u64) {
        self.notify(name, lease, Ok(token));
    }

    /// Called when the lease has left the queue of the lock.
    pub(super) fn notify_left(&self, name: &[u8], lease: u64) {
        self.notify(name, lease, Err(ControlRefusal::NotHeld { lease }));
    }

    pub(super) fn notify_lease_ended(&self, lease: u64) {
        let mut waiters = self.waiters();
        while let Some(entry) = waiters.range((lease, Key::new())..).next().map(|(key, _)| key.clone()) {
            if entry.0 != lease {
                return;
            }
            let senders = waiters.remove(&entry).unwrap_or_default();
            notify(senders, Err(ControlRefusal::NoLease { lease }));
        }
    }

    /// Called when a snapshot has replaced the state. Sends the token to callers whose lease holds the lock. The
    /// channels of all other callers close, so that they read the state again.
    pub(super) fn notify_restored(&self, state: &ControlState) {
        for ((lease, name), senders) in std::mem::take(&mut *self.waiters()) {
            if let Some(token) = state.lock_token(&name, lease) {
                notify(senders, Ok(token));
            }
        }
    }

    /// Ends all waits by closing the callers' channels.
    pub(super) fn end_all(&self) {
        self.waiters().clear();
    }

    fn notify(&self, name: &[u8], lease: u64, outcome: LockOutcome) {
        let mut waiters = self.waiters();
        if waiters.is_empty() {
            return;
        }
        let senders = waiters.remove(&(lease, Key::from_slice(name))).unwrap_or_default();
        notify(senders, outcome);
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the outcome to all waiters. Waiters that have dropped their receivers are skipped.
fn notify(waiters: Vec<oneshot::Sender<LockOutcome>>, outcome: LockOutcome) {
    for waiter in waiters {
        let _ = waiter.send(outcome);
    }
}
