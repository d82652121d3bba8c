//! Callers at this node that wait for locks.
//!
//! Invariant: each caller receives one notification: its token, a refusal, or the request to look at the state again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_control::{ControlRefusal, ControlState, Key};
use tokio::sync::oneshot;

/// The outcome of a wait for a lock: the lock's token, or the reason why the wait failed.
pub(super) type LockOutcome = Result<u64, ControlRefusal>;

/// The callers that wait for locks, by lease and lock name.
#[derive(Debug, Default)]
pub(super) struct LockWaiters(Mutex<Waiters>);

type Waiters = BTreeMap<(u64, Key), Vec<oneshot::Sender<LockOutcome>>>;

impl LockWaiters {
    /// Registers a caller that waits. After this call, the caller has to look whether its lease waits, because an
    /// outcome before the call is not sent.
    pub(super) fn register(&self, name: &[u8], lease: u64) -> oneshot::Receiver<LockOutcome> {
        let (notify, outcome) = oneshot::channel();
        let mut waiters = self.waiters();
        let senders = waiters.entry((lease, Key::from_slice(name))).or_default();
        senders.retain(|waiter| !waiter.is_closed());
        senders.push(notify);
        outcome
    }

    /// Removes waits whose receivers were dropped.
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

    /// Called when the state was restored. Notifies callers whose lease holds the lock. All other callers have to
    /// look again whether their leases wait.
    pub(super) fn notify_restored(&self, state: &ControlState) {
        for ((lease, name), senders) in std::mem::take(&mut *self.waiters()) {
            if let Some(token) = state.lock_token(&name, lease) {
                notify(senders, Ok(token));
            }
        }
    }

    /// Ends all waits. Their receivers then return an error.
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

/// Sends the outcome to all waiters. Ignores waiters whose receivers were dropped.
fn notify(waiters: Vec<oneshot::Sender<LockOutcome>>, outcome: LockOutcome) {
    for waiter in waiters {
        let _ = waiter.send(outcome);
    }
}
