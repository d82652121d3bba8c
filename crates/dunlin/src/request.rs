//! Sends requests, and receives the replies.

use std::fmt::Write as _;
use std::time::Duration;

use dunlin_topic::{
    Draft, Event, Publish, Reply, RequestError, Subject, Subscribe, SubscribeError, SubscribeOptions,
    Subscriber,
};

use crate::clock::steady_ns;
use crate::inbox::Inbox;
use crate::node::Node;

/// Sends requests, one at a time. The replies arrive in the requester's own inbox.
#[derive(Debug)]
pub struct Requester {
    node: Node,
    inbox: Inbox,
    subscriber: Subscriber,
    request_count: u64,
}

impl Node {
    /// Returns a requester with an inbox of its own.
    pub fn requester(&self, options: &SubscribeOptions) -> Result<Requester, SubscribeError> {
        let mut inbox = Inbox::new(self.clone(), self.next_session());
        inbox.open()?;
        let subscriber = self.subscribe(&inbox.pattern(), options)?;
        Ok(Requester { node: self.clone(), inbox, subscriber, request_count: 0 })
    }

    /// Publishes a request, and waits for the first reply. To send several requests, use a [`Requester`]: it is faster,
    /// because it keeps its inbox.
    pub fn request<'a>(
        &self,
        subject: &str,
        draft: impl Into<Draft<'a>>,
        timeout: Duration,
    ) -> Result<Reply, RequestError> {
        self.requester(&SubscribeOptions::default())?.request(subject, draft, timeout)
    }
}

impl Requester {
    /// Publishes a request, and waits for the first reply. Returns `NoResponder` at once if the subject has no
    /// subscriber.
    pub fn request<'a>(
        &mut self,
        subject: &str,
        draft: impl Into<Draft<'a>>,
        timeout: Duration,
    ) -> Result<Reply, RequestError> {
        // If the subject is invalid or forbidden, publishing the request returns the error.
        if let Ok(parsed) = Subject::parse(subject)
            && self.node.may_publish(parsed).is_ok()
            && !self.node.has_subscriber(parsed)
        {
            return Err(RequestError::NoResponder(subject.to_owned()));
        }
        self.request_count += 1;
        let mut reply_to = self.inbox.prefix();
        let tail_at = reply_to.len();
        let _ = write!(reply_to, "{}", self.request_count);
        let mut draft = draft.into();
        draft.meta.reply = Some(&reply_to);
        self.node.publisher(subject)?.publish(draft)?;
        self.await_reply(&reply_to[tail_at..], timeout)
    }

    /// Waits for the reply whose subject ends with `tail`. Skips late replies to earlier requests.
    fn await_reply(&mut self, tail: &str, timeout: Duration) -> Result<Reply, RequestError> {
        let deadline_ns = steady_ns().saturating_add(timeout.as_nanos() as u64);
        loop {
            let remaining = Duration::from_nanos(deadline_ns.saturating_sub(steady_ns()));
            match self.subscriber.next_timeout(remaining)? {
                Some(Event::Record(record)) if record.frame.subject_tail() == tail => {
                    return Ok((&record).into());
                }
                Some(_) => {}
                None => return Err(RequestError::TimedOut(timeout)),
            }
        }
    }
}
