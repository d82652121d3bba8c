//! Sends what publishers have batched when nobody calls anything any more, and takes in the answers.
//!
//! One thread for each client that [`send`](dunlin_topic::Publish::send)s, from its first batch on. It sleeps while nothing is
//! batched and everything is answered, and drives the connection only where nobody else does.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::client::Shared;
use crate::follow::lock;
use crate::publishing::Publishing;

/// How long a batch may be filled.
const FILLING: Duration = Duration::from_micros(500);
/// How often answers are looked for that nobody waits for.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Flusher {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// There is a thread.
    runs: bool,
    /// Somebody holds a batch.
    due: bool,
    ended: bool,
}

impl Flusher {
    /// A publisher holds a batch: it leaves soon, whoever calls what.
    pub(crate) fn soon(self: &Arc<Flusher>, shared: &Arc<Shared>) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.due, true) || state.ended {
            return;
        }
        if state.runs {
            drop(state);
            return self.changed.notify_one();
        }
        let (flusher, shared) = (Arc::clone(self), Arc::downgrade(shared));
        let thread = std::thread::Builder::new().name("dunlin-flush".to_owned());
        // Where there can be no thread, what is batched leaves with the next call.
        state.runs = thread.spawn(move || flusher.run(&shared)).is_ok();
    }

    /// The client is closed.
    pub(crate) fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_one();
    }

    fn run(&self, shared: &Weak<Shared>) {
        let mut unanswered: Vec<Arc<Publishing>> = Vec::new();
        while self.sleep(!unanswered.is_empty()) {
            let Some(shared) = shared.upgrade() else { return };
            for publishing in shared.take_filling() {
                publishing.hand_over_listed(&shared);
                if !unanswered.iter().any(|known| Arc::ptr_eq(known, &publishing)) {
                    unanswered.push(publishing);
                }
            }
            shared.outbox.flush();
            if !unanswered.is_empty() {
                shared.poke();
                unanswered.retain(|publishing| publishing.looks_after_itself(&shared));
            }
        }
    }

    /// Until a batch has been filled for long enough, or it is time to look for answers; `false` at the end.
    fn sleep(&self, looks: bool) -> bool {
        let mut state = lock(&self.state);
        while !state.due && !state.ended {
            if !looks {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (woken, timed_out) =
                self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timed_out.timed_out() {
                break;
            }
        }
        if state.due && !state.ended {
            drop(state);
            std::thread::sleep(FILLING);
            state = lock(&self.state);
        }
        state.due = false;
        !state.ended
    }
}
