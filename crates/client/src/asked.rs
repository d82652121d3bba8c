//! A request that was sent, and its response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_wire::{FromClient, NamedTopic};

use crate::client::{Client, Shared};
use crate::drive::Waited;
use crate::follow::lock;
use crate::session::{Answer, Question};
use crate::topics::AskError;

/// The time `timeout` from now, at most a hundred years: [`Instant`] cannot represent every sum.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);
    Instant::now() + timeout.min(FAR)
}

/// A sent request. Dropping it discards the response; the node may still carry out the request.
#[derive(Debug)]
pub(crate) struct Asked {
    shared: Arc<Shared>,
    question: Arc<Question>,
    number: u32,
}

impl Shared {
    /// Sends a request as soon as there is a connection.
    pub(crate) fn begin_asking<'a>(
        self: &Arc<Shared>,
        request: impl FnOnce(u32) -> FromClient<'a>,
    ) -> Result<Asked, AskError> {
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms_max);
        let question = Arc::new(Question::default());
        let up = || lock(&self.session).up;
        match self.wait_until(&question.waiting, self.options.wait, Some(until), up) {
            Waited::Done => {}
            Waited::TimedOut => return Err(AskError::Away("no connection within the time limit".to_owned())),
            Waited::Away(why) => return Err(AskError::Away(why.to_string())),
        }
        let mut session = lock(&self.session);
        let number = session.number();
        session.add_question(number, Arc::clone(&question));
        let request = request(number);
        let mut message = Vec::new();
        request.encode(&mut message);
        // The connection may have been lost during the wait.
        let is_unsaid = !session.up;
        if !is_unsaid {
            self.outbox.write(&message);
        }
        // Only these requests do not depend on this connection, so that they can be sent again on the next.
        if matches!(request, FromClient::Control(_) | FromClient::Tasks(_)) {
            question.keep(message, is_unsaid);
        }
        drop(session);
        Ok(Asked { shared: Arc::clone(self), question, number })
    }
}

impl Client {
    /// Requests the settings of a topic without waiting. `callback` receives the result on the thread that
    /// drives the connection, or at once if there is no connection.
    pub fn topic_settings_at_once(
        &self,
        topic: &str,
        callback: impl FnOnce(Result<Vec<(String, String)>, AskError>) + Send + 'static,
    ) {
        let shared = Arc::downgrade(&self.shared);
        let question = Question::with_callback(Box::new(move |answer| {
            let bytes = match answer {
                Answer::Done => Ok(Vec::new()),
                Answer::Message(bytes) => Ok(bytes),
                Answer::Refused(refused) => Err(AskError::Refused(refused)),
                Answer::Lost(why) => Err(AskError::Unknown(why)),
            };
            let away = || AskError::Unknown("the client is closed".to_owned());
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

impl Asked {
    /// Whether the response has arrived.
    pub(crate) fn is_answered(&self) -> bool {
        self.question.is_answered()
    }

    /// Waits for the response until `until`, and returns its bytes; empty for a plain "done".
    pub(crate) fn wait(self, until: Option<Instant>) -> Result<Vec<u8>, AskError> {
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
            Waited::TimedOut
        )
    }

    /// Async form of [`wait`](Self::wait), without a time limit.
    #[cfg(feature = "tokio")]
    pub(crate) async fn answered(self) -> Result<Vec<u8>, AskError> {
        let waited = std::future::poll_fn(|cx| {
            let answered = || self.question.is_answered();
            self.shared.poll_until(&self.question.waiting, u64::from(self.number) | TASK, cx, answered)
        });
        let waited = waited.await;
        self.answer(waited)
    }

    fn answer(&self, waited: Waited) -> Result<Vec<u8>, AskError> {
        match (self.question.take(), waited) {
            (Some(Answer::Done), _) => Ok(Vec::new()),
            (Some(Answer::Message(bytes)), _) => Ok(bytes),
            (Some(Answer::Refused(refused)), _) => Err(AskError::Refused(refused)),
            (Some(Answer::Lost(why)), _) => Err(AskError::Unknown(why)),
            (None, Waited::Away(why)) if self.question.is_unsaid() => Err(AskError::Away(why.to_string())),
            (None, _) if self.question.is_unsaid() => {
                Err(AskError::Away("no connection within the time limit".to_owned()))
            }
            (None, Waited::Away(why)) => Err(AskError::Unknown(why.to_string())),
            (None, _) => Err(AskError::Unknown("the node did not answer in time".to_owned())),
        }
    }
}

/// Distinguishes waiting requests from other async waiters.
#[cfg(feature = "tokio")]
const TASK: u64 = 1 << 40;

impl Drop for Asked {
    fn drop(&mut self) {
        lock(&self.shared.session).remove_question(self.number);
    }
}
