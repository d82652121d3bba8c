//! Lets users wait for locks. A wait ends when its user loses the permission for the lock.
//!
//! Invariants:
//! - A lock is granted only to a user that has the permission at that moment.
//! - If the user of a wait loses the permission, the user's lease leaves the lock's queue, even if the client has
//!   disconnected.
//!
//! If a client disconnects while it waits for a lock, the client's lease stays in the lock's queue. The client may
//! continue to wait under the same lease, at any node.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dunlin_control::ControlCommand;
use tokio::sync::watch;

use super::User;
use crate::control::{ControlError, ControlGroup, block_on};
use crate::node::Node;
use crate::refusal::Refused;

/// How many times the node asks the cluster to end a wait or a lease before it gives up. Each attempt may take
/// `answer_ms_max`.
const ATTEMPTS: u32 = 12;
/// The pause after a failed attempt. Without a pause, errors that occur at once, such as too many waiting commands,
/// would use up all attempts.
const PAUSE: Duration = Duration::from_secs(1);

impl Node {
    /// Waits for a lock under one of the user's leases and returns its token. Fails as soon as the user loses the
    /// permission for the lock.
    pub async fn acquire(&self, name: &[u8], lease: u64, value: &[u8]) -> Result<u64, Refused> {
        let command = ControlCommand::Acquire { name, lease, value, wait: true };
        // Subscribe before the first check, so that no change is missed.
        let changes = self.user().map(|user| user.changes());
        let (control, bytes) = self.permitted(&command).await?;
        loop {
            let denied = self.until_denied(changes.clone(), &command);
            let acquired = control.acquire_by(name, lease, &bytes, denied).await;
            if let Err(denied) = self.check_command(&command) {
                self.release_or_leave(control, name, lease);
                return Err(Refused::from(&denied));
            }
            match acquired {
                Ok(Some(token)) => return Ok(token),
                // The user has lost the permission and received it again: continue to wait.
                Ok(None) => {}
                Err(error) => return Err(Refused::from(&error)),
            }
        }
    }

    /// Returns once the user has lost the permission for the command. Never returns on a node without users.
    async fn until_denied(&self, changes: Option<watch::Receiver<()>>, command: &ControlCommand<'_>) {
        if let Some(mut changes) = changes {
            while changes.changed().await.is_ok() {
                if self.check_command(command).is_err() {
                    return;
                }
            }
        }
        std::future::pending().await
    }

    /// Makes the lease release the lock or leave the lock's queue, unless the user has received the permission again.
    fn release_or_leave(&self, control: Arc<ControlGroup>, name: &[u8], lease: u64) {
        let Some(user) = self.user().map(Arc::clone) else { return };
        let name = name.to_vec();
        self.0.waiters.run(move || {
            let release = ControlCommand::Release { name: &name, lease };
            retry(|| match may(&*user, &release) {
                // The user has received the permission again, and may keep the lock.
                true => Ok(()),
                false => block_on(control.release_all(std::slice::from_ref(&release))),
            });
        });
    }

    /// Ends the leases of the `removed` users, with the keys and locks of these leases. If one of the `changed` users
    /// waits for a lock and now lacks the permission for this lock, ends the wait. Retries while the cluster has no
    /// leader.
    pub fn users_changed(&self, removed: Vec<String>, changed: Vec<String>) {
        let (Some(control), Some(users)) = (self.control_if_any(), self.0.users.get()) else { return };
        if !removed.is_empty() {
            let control = Arc::clone(control);
            self.0.waiters.run(move || {
                removed.iter().for_each(|user| retry(|| block_on(control.end_leases_of(user))));
            });
        }
        if !changed.is_empty() {
            let (control, users) = (Arc::clone(control), users.clone());
            self.0.waiters.run(move || {
                for name in &changed {
                    let user = || users.upgrade().and_then(|users| users.user(name));
                    retry(|| block_on(end_denied_waits(&control, name, user)));
                }
            });
        }
    }
}

/// Removes a user's leases from the queues of those locks for which the user lacks the permission.
async fn end_denied_waits(
    control: &ControlGroup,
    name: &str,
    user: impl Fn() -> Option<Arc<dyn User>>,
) -> Result<(), ControlError> {
    let waits = control.waits_of(name).await?;
    if waits.is_empty() {
        return Ok(());
    }
    // If the user no longer exists, another call of `users_changed`, which reports the removal, ends the user's leases.
    let Some(user) = user() else { return Ok(()) };
    let releases = waits.iter().map(|(lease, name)| ControlCommand::Release { name, lease: *lease });
    let denied: Vec<_> = releases.filter(|release| !may(&*user, release)).collect();
    control.release_all(&denied).await
}

fn may(user: &dyn User, command: &ControlCommand<'_>) -> bool {
    user.permissions().keys.command(command).is_ok()
}

fn retry(mut attempt: impl FnMut() -> Result<(), ControlError>) {
    for _ in 0..ATTEMPTS {
        match attempt() {
            Ok(()) | Err(ControlError::Stopped(_)) => return,
            Err(_) => thread::sleep(PAUSE),
        }
    }
}
