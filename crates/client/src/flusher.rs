//! Sends partly filled batches, and reads responses, when no thread waits on the client.
//!
//! The first partly filled batch of a client, which [`send`](dunlin_topic::Publish::send) begins, starts the client's
//! flusher thread. The thread sleeps while there is no partly filled batch and no batch without a response. It reads
//! the connection only if no other thread does.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::client::SharedClient;
use crate::follow::lock;
use crate::publishing::PublisherShared;

/// The longest time for which a partly filled batch waits for more records.
const FLUSH_DELAY: Duration = Duration::from_micros(500);
/// The interval at which the thread reads responses while batches have no response yet.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Flusher {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    /// Whether a publisher has a partly filled batch.
    is_due: bool,
    must_end: bool,
}

impl Flusher {
    /// Makes the thread send the partly filled batches of the client soon. Starts the thread if it does not run yet.
    pub(crate) fn schedule(self: &Arc<Flusher>, shared: &Arc<SharedClient>) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.is_due, true) || state.must_end {
            return;
        }
        if state.is_running {
            drop(state);
            return self.changed.notify_one();
        }
        let (flusher, shared) = (Arc::clone(self), Arc::downgrade(shared));
        let thread = std::thread::Builder::new().name("dunlin-flush".to_owned());
        state.is_running = thread.spawn(move || flusher.run(&shared)).is_ok();
        // If the thread could not be started, the next call tries again. Until then, threads that wait on the client
        // send the batches.
        state.is_due = state.is_running;
    }

    pub(crate) fn end(&self) {
        lock(&self.state).must_end = true;
        self.changed.notify_one();
    }

    fn run(&self, shared: &Weak<SharedClient>) {
        let mut unanswered: Vec<Arc<PublisherShared>> = Vec::new();
        // Whether the socket has taken all bytes. A publisher may have been dropped before the socket took its last
        // bytes.
        let mut is_written = true;
        while self.sleep(!unanswered.is_empty() || !is_written) {
            let Some(shared) = shared.upgrade() else { return };
            for publishing in shared.take_partial() {
                publishing.send_listed_batches(&shared);
                if !unanswered.iter().any(|known| Arc::ptr_eq(known, &publishing)) {
                    unanswered.push(publishing);
                }
            }
            is_written = shared.outbox.flush();
            if !unanswered.is_empty() || !is_written {
                shared.try_pump();
                unanswered.retain(|publishing| publishing.resend_if_needed(&shared));
            }
        }
    }

    /// Sleeps until a batch has to be sent. With `polls`, also returns after [`POLL_INTERVAL`], to read responses.
    /// Returns `false` if the thread has to end.
    fn sleep(&self, polls: bool) -> bool {
        let mut state = lock(&self.state);
        while !state.is_due && !state.must_end {
            if !polls {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (woken, timed_out) =
                self.changed.wait_timeout(state, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timed_out.timed_out() {
                break;
            }
        }
        if state.is_due && !state.must_end {
            drop(state);
            std::thread::sleep(FLUSH_DELAY);
            state = lock(&self.state);
        }
        state.is_due = false;
        !state.must_end
    }
}
