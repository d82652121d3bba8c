//! Sends requests to the node, and waits for the responses.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dunlin_wire::{FromClient, NamedTopic};

use crate::client::{Client, SharedClient};
use crate::drive::WaitOutcome;
use crate::follow::lock;
use crate::session::{RequestOutcome, ResponseSlot};
use crate::topics::CallError;

/// Returns the time `timeout` from now, but at most about 100 years ahead, because an [`Instant`] cannot represent
/// arbitrarily late times.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);
    Instant::now() + timeout.min(FAR)
}

/// The pause before a request is sent again.
pub(crate) const REPEAT_PAUSE: Duration = Duration::from_millis(20);

/// Calls `attempt`, which sends a request whose repetition has no further effect. If `attempt` fails with an error for
/// which `is_lost` returns `true`, calls `attempt` again after a pause, but not after the time `until`.
pub(crate) fn repeat_while_lost<E>(
    until: Instant,
    is_lost: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<Vec<u8>, E>,
) -> Result<Vec<u8>, E> {
    loop {
        match attempt() {
            // The pause prevents a busy loop with a node that closes each connection at once.
            Err(error) if is_lost(&error) && Instant::now() + REPEAT_PAUSE < until => sleep(REPEAT_PAUSE),
            result => return result,
        }
    }
}

/// A request that was sent. Dropping the value discards the response, but the node may still carry out the request.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    shared: Arc<SharedClient>,
    slot: Arc<ResponseSlot>,
    number: u32,
}

impl SharedClient {
    /// Waits until there is a connection, and then sends a request.
    pub(crate) fn send_request<'a>(
        self: &Arc<SharedClient>,
        request: impl FnOnce(u32) -> FromClient<'a>,
    ) -> Result<PendingRequest, CallError> {
        self.send_request_until(Instant::now() + Duration::from_millis(self.limits.answer_ms_max), request)
    }

    /// Like [`send_request`](Self::send_request), but fails if there is no connection by the time `until`.
    pub(crate) fn send_request_until<'a>(
        self: &Arc<SharedClient>,
        until: Instant,
        request: impl FnOnce(u32) -> FromClient<'a>,
    ) -> Result<PendingRequest, CallError> {
        let slot = Arc::new(ResponseSlot::default());
        let is_up = || lock(&self.session).is_up;
        match self.wait_until(&slot.waker, self.options.wait, Some(until), is_up) {
            WaitOutcome::Done => {}
            WaitOutcome::TimedOut => {
                return Err(CallError::Disconnected("no connection within the time limit".to_owned()));
            }
            WaitOutcome::Disconnected(why) => return Err(CallError::Disconnected(why.to_string())),
        }
        let mut session = lock(&self.session);
        let number = session.next_number();
        session.add_request(number, Arc::clone(&slot));
        let request = request(number);
        let mut message = Vec::new();
        request.encode(&mut message);
        // If the connection was lost right after the wait above, the request cannot be sent now.
        let is_unsent = !session.is_up;
        if !is_unsent {
            self.outbox.write(&message);
        }
        // Only these kinds of requests do not depend on the connection. Only they can therefore be sent again on the
        // next connection.
        if matches!(request, FromClient::Control(_) | FromClient::Tasks(_)) {
            slot.store_message(message, is_unsent);
        }
        drop(session);
        Ok(PendingRequest { shared: Arc::clone(self), slot, number })
    }
}

impl Client {
    /// Requests the settings of a topic without waiting. `callback` receives the result: on the thread that reads the
    /// connection, or at once if there is no connection.
    pub fn topic_settings_nowait(
        &self,
        topic: &str,
        callback: impl FnOnce(Result<Vec<(String, String)>, CallError>) + Send + 'static,
    ) {
        let shared = Arc::downgrade(&self.shared);
        let slot = ResponseSlot::with_callback(Box::new(move |outcome| {
            let bytes = match outcome {
                RequestOutcome::Done => Ok(Vec::new()),
                RequestOutcome::Message(bytes) => Ok(bytes),
                RequestOutcome::Refused(refused) => Err(CallError::Refused(refused)),
                RequestOutcome::Lost(why) => Err(CallError::Unknown(why)),
            };
            let closed = || CallError::Unknown("the client is closed".to_owned());
            let read = |bytes: Vec<u8>| shared.upgrade().ok_or_else(closed)?.read_settings(&bytes);
            callback(bytes.and_then(read));
        }));
        let mut session = lock(&self.shared.session);
        if !session.is_up {
            drop(session);
            return slot.fail("there is no connection");
        }
        let request = session.next_number();
        session.add_request(request, Arc::new(slot));
        self.shared.send_message(&FromClient::DescribeSettings(NamedTopic { request, topic }));
    }
}

impl PendingRequest {
    pub(crate) fn is_answered(&self) -> bool {
        self.slot.is_answered()
    }

    /// Waits for the response until the time `until`, and returns the bytes of the response. The response DONE has no
    /// bytes.
    pub(crate) fn wait(self, until: Option<Instant>) -> Result<Vec<u8>, CallError> {
        let answered = || self.slot.is_answered();
        let waited = self.shared.wait_until(&self.slot.waker, self.shared.options.wait, until, answered);
        self.take_result(waited)
    }

    /// Waits for the response until the time `until`. Returns `false` if the wait ended at this time, and `true` if it
    /// ended before, for whatever reason.
    pub(crate) fn wait_until(&self, until: Instant) -> bool {
        let answered = || self.slot.is_answered();
        let wait = self.shared.options.wait;
        !matches!(
            self.shared.wait_until(&self.slot.waker, wait, Some(until), answered),
            WaitOutcome::TimedOut
        )
    }

    /// Async form of [`wait`](Self::wait), without a time limit.
    #[cfg(feature = "tokio")]
    pub(crate) async fn answered(self) -> Result<Vec<u8>, CallError> {
        let waited = std::future::poll_fn(|cx| {
            let answered = || self.slot.is_answered();
            self.shared.poll_until(&self.slot.waker, u64::from(self.number) | TASK, cx, answered)
        });
        let waited = waited.await;
        self.take_result(waited)
    }

    fn take_result(&self, waited: WaitOutcome) -> Result<Vec<u8>, CallError> {
        match (self.slot.take(), waited) {
            (Some(RequestOutcome::Done), _) => Ok(Vec::new()),
            (Some(RequestOutcome::Message(bytes)), _) => Ok(bytes),
            (Some(RequestOutcome::Refused(refused)), _) => Err(CallError::Refused(refused)),
            (Some(RequestOutcome::Lost(why)), _) => Err(CallError::Unknown(why)),
            (None, WaitOutcome::Disconnected(why)) if self.slot.is_unsent() => {
                Err(CallError::Disconnected(why.to_string()))
            }
            (None, _) if self.slot.is_unsent() => {
                Err(CallError::Disconnected("no connection within the time limit".to_owned()))
            }
            (None, WaitOutcome::Disconnected(why)) => Err(CallError::Unknown(why.to_string())),
            (None, _) => Err(CallError::Unknown("the node did not answer in time".to_owned())),
        }
    }
}

/// A bit that is set in the number of each async task that waits for the response to a request. Other tasks that wait
/// on the client have numbers without this bit.
#[cfg(feature = "tokio")]
const TASK: u64 = 1 << 40;

impl Drop for PendingRequest {
    fn drop(&mut self) {
        lock(&self.shared.session).remove_request(self.number);
    }
}
