//! Sends partly filled batches, and reads responses, when no thread waits on the client.
//!
//! A client that uses [`send`](dunlin_topic::Publish::send) has one such thread from its first batch on. The
//! thread sleeps while nothing is batched or unanswered, and drives the connection only if no other thread
//! does.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::client::SharedClient;
use crate::follow::lock;
use crate::publishing::PublisherShared;

/// The longest time for which a partly filled batch waits for more records.
const FILLING: Duration = Duration::from_micros(500);
/// The interval at which the thread reads responses while batches are unanswered.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Flusher {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the thread is running.
    runs: bool,
    /// Whether a publisher has a partly filled batch.
    due: bool,
    /// Whether the thread has to end.
    ended: bool,
}

impl Flusher {
    /// Makes the thread send a publisher's batch soon.
    pub(crate) fn soon(self: &Arc<Flusher>, shared: &Arc<SharedClient>) {
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
        // If no thread could start, the next call sends the batch.
        state.runs = thread.spawn(move || flusher.run(&shared)).is_ok();
    }

    /// Ends the thread when the client closes.
    pub(crate) fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_one();
    }

    fn run(&self, shared: &Weak<SharedClient>) {
        let mut unanswered: Vec<Arc<PublisherShared>> = Vec::new();
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

    /// Sleeps until a batch has to be sent or, if `looks`, until the thread has to read responses. Returns `false` if
    /// the thread has to end.
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
