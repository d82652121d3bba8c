//! Callers at this node that wait for locks.
//!
//! Invariant: each caller receives one notification: its token, a refusal, or the request to try again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_control::{ControlRefusal, ControlState, Key, LOCKS};
use tokio::sync::oneshot;

/// The lock's token, or the reason why the wait failed.
pub(super) type LockOutcome = Result<u64, ControlRefusal>;

/// Callers that wait, by lease and lock name.
#[derive(Debug, Default)]
pub(super) struct LockWaiters(Mutex<Waiters>);

type Waiters = BTreeMap<(u64, Key), Vec<oneshot::Sender<LockOutcome>>>;

impl LockWaiters {
    /// Registers a caller that waits. It has to request the lock after this call.
    pub(super) fn enter(&self, name: &[u8], lease: u64) -> oneshot::Receiver<LockOutcome> {
        let (notify, outcome) = oneshot::channel();
        let mut waiters = self.waiters();
        let those = waiters.entry((lease, Key::from_slice(name))).or_default();
        those.retain(|waiter| !waiter.is_closed());
        those.push(notify);
        outcome
    }

    /// Removes waits whose receivers were dropped.
    pub(super) fn leave(&self, name: &[u8], lease: u64) {
        let mut waiters = self.waiters();
        let key = (lease, Key::from_slice(name));
        if let Some(those) = waiters.get_mut(&key) {
            those.retain(|waiter| !waiter.is_closed());
            if those.is_empty() {
                waiters.remove(&key);
            }
        }
    }

    pub(super) fn granted(&self, name: &[u8], lease: u64, token: u64) {
        self.notify(name, lease, Ok(token));
    }

    /// Called when the lease has left the queue of the lock.
    pub(super) fn left(&self, name: &[u8], lease: u64) {
        self.notify(name, lease, Err(ControlRefusal::NotHeld { lease }));
    }

    /// Called when the lease has ended.
    pub(super) fn ended(&self, lease: u64) {
        let mut waiters = self.waiters();
        while let Some(entry) = waiters.range((lease, Key::new())..).next().map(|(key, _)| key.clone()) {
            if entry.0 != lease {
                return;
            }
            let those = waiters.remove(&entry).unwrap_or_default();
            notify(those, Err(ControlRefusal::NoLease { lease }));
        }
    }

    /// Called when the state was restored. Notifies callers whose lease holds the lock. All other callers have to
    /// request their locks again.
    pub(super) fn look(&self, state: &ControlState) {
        for ((lease, name), those) in std::mem::take(&mut *self.waiters()) {
            let held = state.get(&[LOCKS, &name].concat()).filter(|item| item.lease == lease);
            if let Some(token) = held.map(|item| item.created) {
                notify(those, Ok(token));
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
        let those = waiters.remove(&(lease, Key::from_slice(name))).unwrap_or_default();
        notify(those, outcome);
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
