//! What lasts longer than a call, and ends when the user's permission for it does: waits for locks.
//!
//! Invariants:
//! - A lock is given to nobody who may not have it at that moment, whatever was allowed when the wait began.
//! - A wait whose user lost the permission leaves the lock's queue, also where its client is gone.
//!
//! A client that goes away while it waits keeps its place: it comes back, perhaps to another node, and asks again under the same lease.

use std::sync::Arc;

use dunlin_control::Command;
use tokio::sync::watch;

use super::User;
use crate::control::{Control, ControlError, block_on};
use crate::node::Node;
use crate::refusal::Refused;

/// Attempts to have the cluster end something, each for `answer_ms_max`.
const TRIES: u32 = 12;

impl Node {
    /// Takes a lock under a lease of the user's, however long it takes; its token. Refused as soon as the user may not have it any
    /// more.
    pub async fn acquire(&self, name: &[u8], lease: u64, value: &[u8]) -> Result<u64, Refused> {
        let command = Command::Acquire { name, lease, value, wait: true };
        // Before the first look at the permissions: no change is missed.
        let changes = self.user().map(|user| user.changes());
        let (control, bytes) = self.permitted(&command).await?;
        loop {
            let denied = self.until_denied(changes.clone(), &command);
            let acquired = control.acquire_by(name, lease, &bytes, denied).await;
            if let Err(denied) = self.check_command(&command) {
                self.give_back(control, name, lease);
                return Err(Refused::from(&denied));
            }
            match acquired {
                Ok(Some(token)) => return Ok(token),
                // It was denied, and is allowed again.
                Ok(None) => {}
                Err(error) => return Err(Refused::from(&error)),
            }
        }
    }

    /// Returns when the user may not give the command any more; never without users.
    async fn until_denied(&self, changes: Option<watch::Receiver<()>>, command: &Command<'_>) {
        if let Some(mut changes) = changes {
            while changes.changed().await.is_ok() {
                if self.check_command(command).is_err() {
                    return;
                }
            }
        }
        std::future::pending().await
    }

    /// Releases a lock, or leaves its queue, for a user who may not have it and has been told so.
    fn give_back(&self, control: Arc<Control>, name: &[u8], lease: u64) {
        let Some(user) = self.user().map(Arc::clone) else { return };
        let name = name.to_vec();
        self.0.waiters.run(move || {
            let release = Command::Release { name: &name, lease };
            try_to(|| match may(&*user, &release) {
                // It is the client's again.
                true => Ok(()),
                false => block_on(control.release_all(std::slice::from_ref(&release))),
            });
        });
    }

    /// The users have changed: ends the leases of those that were `removed`, with the keys and locks under them, and waits for locks
    /// of those whose permissions for keys `changed`, as far as they may not have the locks any more. Tries for a while where there is no leader.
    pub fn users_changed(&self, removed: Vec<String>, changed: Vec<String>) {
        let (Some(control), Some(users)) = (self.control_if_any(), self.0.users.get()) else { return };
        if !removed.is_empty() {
            let control = Arc::clone(control);
            self.0.waiters.run(move || {
                removed.iter().for_each(|user| try_to(|| block_on(control.end_leases_of(user))));
            });
        }
        if !changed.is_empty() {
            let (control, users) = (Arc::clone(control), users.clone());
            self.0.waiters.run(move || {
                for name in &changed {
                    let user = || users.upgrade().and_then(|users| users.user(name));
                    try_to(|| block_on(end_denied_waits(&control, name, user)));
                }
            });
        }
    }
}

/// Takes a user's leases out of the queues of locks that the user may not have.
async fn end_denied_waits(
    control: &Control,
    name: &str,
    user: impl Fn() -> Option<Arc<dyn User>>,
) -> Result<(), ControlError> {
    let waits = control.waits_of(name).await?;
    if waits.is_empty() {
        return Ok(());
    }
    // One who was removed meanwhile has no leases left soon.
    let Some(user) = user() else { return Ok(()) };
    let releases = waits.iter().map(|(lease, name)| Command::Release { name, lease: *lease });
    let denied: Vec<_> = releases.filter(|release| !may(&*user, release)).collect();
    control.release_all(&denied).await
}

fn may(user: &dyn User, command: &Command<'_>) -> bool {
    user.permissions().keys.command(command).is_ok()
}

fn try_to(mut done: impl FnMut() -> Result<(), ControlError>) {
    for _ in 0..TRIES {
        if done().is_ok() {
            return;
        }
    }
}
