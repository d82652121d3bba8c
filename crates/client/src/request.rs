//! Sends requests to responders, and receives their replies.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dunlin_topic::{
    Draft, Event, Publish, PublishError, Reply, RequestError, Start, Subscribe, SubscribeError,
    SubscribeOptions,
};

use dunlin_wire::ErrorCode;

use crate::client::Client;
use crate::follow::lock;
use crate::pending_request::deadline;
use crate::publisher::{Publisher, PublisherOptions};
use crate::subscriber::Subscriber;
use crate::topics::CallError;

/// The prefix with which a client asks whether a subject has a subscriber: the client sends DESCRIBE_SETTINGS, with
/// this prefix and the subject in place of a topic's name (`docs/protocol.md`).
const SUBSCRIBER_QUERY_PREFIX: &str = "$DUNLIN.heard.";
/// The maximum number of publishers that a requester keeps open. A requester has one publisher for each subject.
const PUBLISHERS_MAX: usize = 256;

/// A handle that sends requests, one at a time, and receives their replies. A request fails if the connection is lost
/// before the reply arrives.
#[derive(Debug)]
pub struct Requester {
    client: Client,
    inbox: Option<ReplyInbox>,
    publishers: HashMap<String, Publisher>,
    requests: u64,
}

/// Returns a new prefix for the reply subjects of one requester. It begins with `session_prefix`, the prefix of the
/// inbox that all handles of the session share.
pub(crate) fn requester_prefix(session_prefix: &str) -> String {
    // A counter that gives each requester of this process a number of its own.
    static REQUESTERS: AtomicU64 = AtomicU64::new(1);
    format!("{session_prefix}{}.", REQUESTERS.fetch_add(1, Ordering::Relaxed))
}

#[derive(Debug)]
struct ReplyInbox {
    subscriber: Subscriber,
    /// The prefix of this requester's reply subjects.
    prefix: String,
    /// The length of the literal prefix of the inbox's topic, in bytes. A received record contains only the tail of its
    /// subject, which is the part after this prefix.
    topic_prefix_bytes: usize,
    connection: u64,
}

impl Client {
    /// Creates a handle that sends requests over this client.
    pub fn requester(&self) -> Requester {
        Requester { client: self.clone(), inbox: None, publishers: HashMap::new(), requests: 0 }
    }

    /// Asks the node whether the subject has a subscriber, and fails if it has none. If the node does not know this
    /// query, the subject may have a subscriber, so the check succeeds.
    fn check_subscriber(&self, subject: &str) -> Result<(), RequestError> {
        match self.topic_settings(&format!("{SUBSCRIBER_QUERY_PREFIX}{subject}")) {
            Err(CallError::Refused(refused)) if refused.code == ErrorCode::NoResponder => {
                Err(RequestError::NoResponder(subject.to_owned()))
            }
            // Any other error is ignored, because the publisher reports the problem when it sends the request.
            _ => Ok(()),
        }
    }

    /// Publishes a request and waits for the first reply, at most `timeout`. For several requests, a [`Requester`] is
    /// faster.
    pub fn request<'a>(
        &self,
        subject: &str,
        draft: impl Into<Draft<'a>>,
        timeout: Duration,
    ) -> Result<Reply, RequestError> {
        self.requester().request(subject, draft, timeout)
    }
}

impl Requester {
    /// Publishes a request and waits for the first reply, at most `timeout`.
    pub fn request<'a>(
        &mut self,
        subject: &str,
        draft: impl Into<Draft<'a>>,
        timeout: Duration,
    ) -> Result<Reply, RequestError> {
        let until = deadline(timeout);
        self.open_inbox()?;
        if !self.publishers.contains_key(subject) {
            self.client.check_subscriber(subject)?;
        }
        self.open_publisher(subject)?;
        self.requests += 1;
        let (Some(inbox), Some(publisher)) = (&mut self.inbox, self.publishers.get_mut(subject)) else {
            return Err(SubscribeError::Closed.into());
        };
        let prefix_bytes = inbox.prefix.len();
        let _ = write!(inbox.prefix, "{}", self.requests);
        let mut draft = draft.into();
        draft.meta.reply = Some(&inbox.prefix);
        let sent = publisher.send(draft).and_then(|()| publisher.send_batches());
        let tail = inbox.prefix.split_off(prefix_bytes);
        let tail = format!("{}{tail}", &inbox.prefix[inbox.topic_prefix_bytes..]);
        sent?;
        inbox.await_reply(&tail, publisher, until, timeout)
    }

    /// The number of requests that were sent, including failed requests that may have been sent.
    pub(crate) fn sent_requests(&self) -> u64 {
        self.requests
    }

    fn open_inbox(&mut self) -> Result<(), RequestError> {
        let connections = self.client.connections();
        if self.inbox.as_ref().is_some_and(|inbox| inbox.connection == connections) && self.client.is_up() {
            return Ok(());
        }
        self.inbox = None;
        let wait = self.client.shared.options.wait;
        loop {
            let (session_prefix, connection) = self.client.shared.wait_for_inbox()?;
            let prefix = requester_prefix(&session_prefix);
            let options = SubscribeOptions { start: Start::Latest, wait, ..SubscribeOptions::default() };
            let subscribed = self.client.subscribe(&format!("{prefix}>"), options);
            // If the connection was lost since `wait_for_inbox`, the subscription reads an inbox that no longer exists.
            if self.client.connections() == connection {
                let (subscriber, topic_prefix_bytes) = (subscribed?, session_prefix.len());
                self.inbox = Some(ReplyInbox { subscriber, prefix, topic_prefix_bytes, connection });
                return Ok(());
            }
        }
    }

    fn open_publisher(&mut self, subject: &str) -> Result<(), PublishError> {
        if !self.publishers.contains_key(subject) {
            if self.publishers.len() >= PUBLISHERS_MAX {
                self.publishers.clear();
            }
            let quiet = PublisherOptions { quiet: true, identity: None };
            self.publishers.insert(subject.to_owned(), self.client.publisher_with(subject, quiet)?);
        }
        Ok(())
    }
}

impl ReplyInbox {
    /// Waits for the reply whose subject has this `tail`. Skips late replies to earlier requests.
    fn await_reply(
        &mut self,
        tail: &str,
        publisher: &mut Publisher,
        until: Instant,
        timeout: Duration,
    ) -> Result<Reply, RequestError> {
        let connection = self.connection;
        loop {
            while self.subscriber.has_received()? {
                if let Event::Record(record) = self.subscriber.take()
                    && record.frame.subject_tail() == tail
                {
                    return Ok((&record).into());
                }
            }
            publisher.check_failure()?;
            let now = Instant::now();
            if now >= until {
                return Err(RequestError::TimedOut(timeout));
            }
            let has_event = self.subscriber.wait_or(until - now, || publisher.has_failed())?;
            if !has_event && publisher.connections() != connection {
                return Err(PublishError::Unknown("the connection was lost".to_owned()).into());
            }
        }
    }
}

impl crate::client::SharedClient {
    /// Returns the prefix of the inbox on the present connection, and the number of this connection; `None` if there is
    /// no connection.
    pub(crate) fn inbox_if_up(&self) -> Option<(String, u64)> {
        let session = lock(&self.session);
        session.is_up.then(|| (session.inbox_prefix.clone(), session.generation))
    }

    /// Waits until there is a connection. Returns the prefix of the inbox on this connection, and the number of the
    /// connection.
    pub(crate) fn wait_for_inbox(&self) -> Result<(String, u64), SubscribeError> {
        let waker = crate::follow::HandleWaker::default();
        let mut found = None;
        let is_up = || {
            found = self.inbox_if_up();
            found.is_some()
        };
        let waited = self.wait_until(&waker, self.options.wait, None, is_up);
        match (waited, found) {
            (crate::drive::WaitOutcome::Disconnected(why), _) => {
                Err(SubscribeError::Connection(why.to_string()))
            }
            (_, Some(found)) => Ok(found),
            (_, None) => Err(SubscribeError::Closed),
        }
    }
}
