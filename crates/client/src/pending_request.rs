//! A request that was sent, and its response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_wire::{FromClient, NamedTopic};

use crate::client::{Client, SharedClient};
use crate::drive::WaitOutcome;
use crate::follow::lock;
use crate::session::{RequestOutcome, ResponseSlot};
use crate::topics::CallError;

/// The time `timeout` from now, at most a hundred years: [`Instant`] cannot represent every sum.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);
    Instant::now() + timeout.min(FAR)
}

/// A sent request. Dropping it discards the response; the node may still carry out the request.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    shared: Arc<SharedClient>,
    question: Arc<ResponseSlot>,
    number: u32,
}

impl SharedClient {
    /// Sends a request as soon as there is a connection.
    pub(crate) fn send_request<'a>(
        self: &Arc<SharedClient>,
        request: impl FnOnce(u32) -> FromClient<'a>,
    ) -> Result<PendingRequest, CallError> {
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms_max);
        let question = Arc::new(ResponseSlot::default());
        let up = || lock(&self.session).up;
        match self.wait_until(&question.waiting, self.options.wait, Some(until), up) {
            WaitOutcome::Done => {}
            WaitOutcome::TimedOut => {
                return Err(CallError::Disconnected("no connection within the time limit".to_owned()));
            }
            WaitOutcome::Disconnected(why) => return Err(CallError::Disconnected(why.to_string())),
        }
        let mut session = lock(&self.session);
        let number = session.number();
        session.add_question(number, Arc::clone(&question));
        let request = request(number);
        let mut message = Vec::new();
        request.encode(&mut message);
        // The connection may have been lost since the request was written, so that it was not sent.
        let is_unsent = !session.up;
        if !is_unsent {
            self.outbox.write(&message);
        }
        // Only these requests do not depend on this connection. The next connection can send them again.
        if matches!(request, FromClient::Control(_) | FromClient::Tasks(_)) {
            question.keep(message, is_unsent);
        }
        drop(session);
        Ok(PendingRequest { shared: Arc::clone(self), question, number })
    }
}

impl Client {
    /// Requests the settings of a topic without waiting. `callback` receives the result on the thread that
    /// drives the connection, or at once if there is no connection.
    pub fn topic_settings_at_once(
        &self,
        topic: &str,
        callback: impl FnOnce(Result<Vec<(String, String)>, CallError>) + Send + 'static,
    ) {
        let shared = Arc::downgrade(&self.shared);
        let question = ResponseSlot::with_callback(Box::new(move |answer| {
            let bytes = match answer {
                RequestOutcome::Done => Ok(Vec::new()),
                RequestOutcome::Message(bytes) => Ok(bytes),
                RequestOutcome::Refused(refused) => Err(CallError::Refused(refused)),
                RequestOutcome::Lost(why) => Err(CallError::Unknown(why)),
            };
            let away = || CallError::Unknown("the client is closed".to_owned());
            let read = |bytes: Vec<u8>| shared.upgrade().ok_or_else(away)?.read_settings(&bytes);
            callback(bytes.and_then(read));
        }));
        let mut session = lock(&self.shared.session);
        if !session.up {
            drop(session);
            return question.lost("there is no connection");
        }
        let request = session.number();
        session.add_question(request, Arc::new(question));
        self.shared.say(&FromClient::DescribeSettings(NamedTopic { request, topic }));
    }
}

impl PendingRequest {
    /// Whether the response has arrived.
    pub(crate) fn is_answered(&self) -> bool {
        self.question.is_answered()
    }

    /// Waits for the response until `until`, and returns its bytes; empty for a plain "done".
    pub(crate) fn wait(self, until: Option<Instant>) -> Result<Vec<u8>, CallError> {
        let answered = || self.question.is_answered();
        let waited =
            self.shared.wait_until(&self.question.waiting, self.shared.options.wait, until, answered);
        self.answer(waited)
    }

    /// Waits for the response until `until`. Returns `false` if the time has passed, `true` if the wait ended
    /// for any other reason.
    pub(crate) fn wait_a_while(&self, until: Instant) -> bool {
        let answered = || self.question.is_answered();
        let wait = self.shared.options.wait;
        !matches!(
            self.shared.wait_until(&self.question.waiting, wait, Some(until), answered),
            WaitOutcome::TimedOut
        )
    }

    /// Async form of [`wait`](Self::wait), without a time limit.
    #[cfg(feature = "tokio")]
    pub(crate) async fn answered(self) -> Result<Vec<u8>, CallError> {
        let waited = std::future::poll_fn(|cx| {
            let answered = || self.question.is_answered();
            self.shared.poll_until(&self.question.waiting, u64::from(self.number) | TASK, cx, answered)
        });
        let waited = waited.await;
        self.answer(waited)
    }

    fn answer(&self, waited: WaitOutcome) -> Result<Vec<u8>, CallError> {
        match (self.question.take(), waited) {
            (Some(RequestOutcome::Done), _) => Ok(Vec::new()),
            (Some(RequestOutcome::Message(bytes)), _) => Ok(bytes),
            (Some(RequestOutcome::Refused(refused)), _) => Err(CallError::Refused(refused)),
            (Some(RequestOutcome::Lost(why)), _) => Err(CallError::Unknown(why)),
            (None, WaitOutcome::Disconnected(why)) if self.question.is_unsent() => {
                Err(CallError::Disconnected(why.to_string()))
            }
            (None, _) if self.question.is_unsent() => {
                Err(CallError::Disconnected("no connection within the time limit".to_owned()))
            }
            (None, WaitOutcome::Disconnected(why)) => Err(CallError::Unknown(why.to_string())),
            (None, _) => Err(CallError::Unknown("the node did not answer in time".to_owned())),
        }
    }
}

/// A bit in the numbers of tasks that wait for requests. It distinguishes these tasks from others that wait on the
/// client.
#[cfg(feature = "tokio")]
const TASK: u64 = 1 << 40;

impl Drop for PendingRequest {
    fn drop(&mut self) {
        lock(&self.shared.session).remove_question(self.number);
    }
}
