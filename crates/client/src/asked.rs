//! A request that was sent, and its answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_wire::{FromClient, NamedTopic};

use crate::client::{Client, Shared};
use crate::drive::Waited;
use crate::follow::lock;
use crate::session::{Answer, Question};
use crate::topics::AskError;

/// A moment so long from now; a hundred years from now where `timeout` is longer, since a clock cannot count for ever.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);
    Instant::now() + timeout.min(FAR)
}

/// See the module. Dropped, nobody waits for the answer, and what was asked may be done all the same.
#[derive(Debug)]
pub(crate) struct Asked {
    shared: Arc<Shared>,
    question: Arc<Question>,
    number: u32,
}

impl Shared {
    /// Sends a request once there is a connection.
    pub(crate) fn begin_asking<'a>(
        self: &Arc<Shared>,
        request: impl FnOnce(u32) -> FromClient<'a>,
    ) -> Result<Asked, AskError> {
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms_max);
        let question = Arc::new(Question::default());
        let up = || lock(&self.session).up;
        match self.wait_until(&question.waiting, self.options.wait, Some(until), up) {
            Waited::Done => {}
            Waited::TimedOut => return Err(AskError::Away("no connection in time".to_owned())),
            Waited::Away(why) => return Err(AskError::Away(why.to_string())),
        }
        let mut session = lock(&self.session);
        let number = session.number();
        session.add_question(number, Arc::clone(&question));
        let request = request(number);
        let mut message = Vec::new();
        request.encode(&mut message);
        // While it was waited for the connection may have gone again.
        let is_unsaid = !session.up;
        if !is_unsaid {
            self.outbox.write(&message);
        }
        // Other requests concern something that the client began on this very connection.
        if matches!(request, FromClient::Control(_) | FromClient::Tasks(_)) {
            question.keep(message, is_unsaid);
        }
        drop(session);
        Ok(Asked { shared: Arc::clone(self), question, number })
    }
}

impl Client {
    /// Asks for the settings of a topic now; what comes of it is told to `callback`, on the thread that drives the connection or, where
    /// there is none, at once.
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
    /// Whether the answer is there.
    pub(crate) fn is_answered(&self) -> bool {
        self.question.is_answered()
    }

    /// Waits for the answer, at most until then; its bytes, if it is more than "done".
    pub(crate) fn wait(self, until: Option<Instant>) -> Result<Vec<u8>, AskError> {
        let answered = || self.question.is_answered();
        let waited =
            self.shared.wait_until(&self.question.waiting, self.shared.options.wait, until, answered);
        self.answer(waited)
    }

    /// Waits for the answer, at most until then; whether there is one, or the wait has to end for another reason.
    pub(crate) fn wait_a_while(&self, until: Instant) -> bool {
        let answered = || self.question.is_answered();
        let wait = self.shared.options.wait;
        !matches!(
            self.shared.wait_until(&self.question.waiting, wait, Some(until), answered),
            Waited::TimedOut
        )
    }

    /// The same for tasks.
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
            (None, _) if self.question.is_unsaid() => Err(AskError::Away("no connection in time".to_owned())),
            (None, Waited::Away(why)) => Err(AskError::Unknown(why.to_string())),
            (None, _) => Err(AskError::Unknown("the node did not answer in time".to_owned())),
        }
    }
}

/// Requests have numbers of their own among the tasks that wait.
#[cfg(feature = "tokio")]
const TASK: u64 = 1 << 40;

impl Drop for Asked {
    fn drop(&mut self) {
        lock(&self.shared.session).remove_question(self.number);
    }
}
