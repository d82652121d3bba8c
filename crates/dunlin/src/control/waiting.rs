//! Those of this node's who wait for locks.
//!
//! Invariant: whoever waits is told once: that the lock is theirs, that it never will be, or to ask again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_control::{Key, LOCKS, Refusal, State};
use tokio::sync::oneshot;

/// The lock's token, or why it is not to be had.
pub(super) type Told = Result<u64, Refusal>;

/// See the module. By lease, then by the lock's name.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Waiters>);

type Waiters = BTreeMap<(u64, Key), Vec<oneshot::Sender<Told>>>;

impl Waiting {
    /// From now on whoever holds the receiver is told. It is to be asked for the lock after this.
    pub(super) fn enter(&self, name: &[u8], lease: u64) -> oneshot::Receiver<Told> {
        let (tell, told) = oneshot::channel();
        let mut waiters = self.waiters();
        let those = waiters.entry((lease, Key::from_slice(name))).or_default();
        those.retain(|waiter| !waiter.is_closed());
        those.push(tell);
        told
    }

    /// Forgets those who do not wait any more.
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
        self.tell(name, lease, Ok(token));
    }

    /// Who waited has stopped waiting.
    pub(super) fn left(&self, name: &[u8], lease: u64) {
        self.tell(name, lease, Err(Refusal::NotHeld { lease }));
    }

    /// The lease is no more.
    pub(super) fn ended(&self, lease: u64) {
        let mut waiters = self.waiters();
        while let Some(entry) = waiters.range((lease, Key::new())..).next().map(|(key, _)| key.clone()) {
            if entry.0 != lease {
                return;
            }
            let those = waiters.remove(&entry).unwrap_or_default();
            tell(those, Err(Refusal::NoLease { lease }));
        }
    }

    /// The state has become another at once: holders are told, and all others are to ask again.
    pub(super) fn look(&self, state: &State) {
        for ((lease, name), those) in std::mem::take(&mut *self.waiters()) {
            let held = state.get(&[LOCKS, &name].concat()).filter(|item| item.lease == lease);
            if let Some(token) = held.map(|item| item.created) {
                tell(those, Ok(token));
            }
        }
    }

    /// Nobody will be told any more.
    pub(super) fn end_all(&self) {
        self.waiters().clear();
    }

    fn tell(&self, name: &[u8], lease: u64, told: Told) {
        let mut waiters = self.waiters();
        if waiters.is_empty() {
            return;
        }
        let those = waiters.remove(&(lease, Key::from_slice(name))).unwrap_or_default();
        tell(those, told);
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who does not wait any more is not told.
fn tell(waiters: Vec<oneshot::Sender<Told>>, told: Told) {
    for waiter in waiters {
        let _ = waiter.send(told);
    }
}
