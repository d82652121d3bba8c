//! Publishes requests, and waits for the first reply to each. Replies go to subjects in the connection's inbox.
//!
//! The inbox is created with the connection's first request. The node itself subscribes to the inbox, so that the
//! thread that publishes a reply wakes the waiting call directly.
//!
//! Limit: the connection's limit of concurrent calls. A late reply is dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin::topic::{Pattern, Subject};
use dunlin::wire::ErrorCode;
use dunlin::{Inbox, Node, Refused, Request, Responder};
use tokio::sync::oneshot;

use super::append::{IncomingRecord, PublishTarget, append};
use super::connection::GrpcConnection;
use super::proto::dunlin as v1;
use super::translate;

/// How long a request waits for a reply by default.
const REPLY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct PendingRequests {
    /// Receives the replies. This field is declared before `inbox`, so that it is dropped first.
    _replies: Responder,
    inbox: Inbox,
    waiters: Arc<ReplyWaiters>,
    last_number: u64,
}

/// The channels to calls that wait for a reply, by the number at the end of the reply subject.
#[derive(Debug, Default)]
struct ReplyWaiters(Mutex<HashMap<u64, oneshot::Sender<v1::Record>>>);

/// A reply for which a call waits; dropping this ends the wait.
struct ExpectedReply {
    reply_to: String,
    number: u64,
    reply: oneshot::Receiver<v1::Record>,
    waiters: Arc<ReplyWaiters>,
}

/// Publishes a request, and returns the first reply.
pub(super) async fn request(
    connection: &Arc<GrpcConnection>,
    request: v1::RequestRequest,
) -> Result<v1::RequestResponse, Refused> {
    let v1::RequestRequest { subject, record, timeout_ms } = request;
    let record = record.ok_or_else(|| Refused::new(ErrorCode::BadFrame, "the request has no record"))?;
    if !record.reply.is_empty() {
        return Err(Refused::new(
            ErrorCode::BadFrame,
            "the record must not set a reply subject; the response carries the reply",
        ));
    }
    let node = &connection.node;
    let parsed = Subject::parse(&subject);
    let parsed = parsed.map_err(|error| Refused::new(ErrorCode::Subject, error.to_string()))?;
    node.may_publish(parsed).map_err(|error| Refused::from(&error))?;
    // If the node cannot find out whether the subject has a subscriber, it assumes that there is one.
    if !node.has_subscriber_async(&Pattern::from(parsed)).await.unwrap_or(true) {
        return Err(Refused::new(ErrorCode::NoResponder, subject));
    }
    let target = PublishTarget::find(connection, &subject, &record.payload, None).await?;
    connection.admit_publish(record.payload.len())?;
    let mut expected = connection.expect_reply()?;
    let record = v1::Draft { reply: expected.reply_to.clone(), ..record };
    append(&target, IncomingRecord { record: &record, mark: None, expect_last: None, after: None }).await?;
    let reply_timeout = match timeout_ms {
        0 => REPLY_TIMEOUT_DEFAULT,
        ms => Duration::from_millis(ms.into()),
    };
    let reply = async {
        match tokio::time::timeout(reply_timeout, &mut expected.reply).await {
            Ok(Ok(reply)) => Ok(v1::RequestResponse { reply: Some(reply) }),
            // The sender of the reply was dropped, because the node stops.
            Ok(Err(_)) => Err(Refused::new(ErrorCode::ShuttingDown, "")),
            Err(_) => {
                let numbers = [reply_timeout.as_millis() as u64, 0, 0];
                Err(Refused { numbers, ..Refused::new(ErrorCode::NoReply, "") })
            }
        }
    };
    connection.run_while_valid(reply).await
}

impl GrpcConnection {
    fn expect_reply(&self) -> Result<ExpectedReply, Refused> {
        let mut requests = self.requests().lock().unwrap_or_else(PoisonError::into_inner);
        let requests = match &mut *requests {
            Some(requests) => requests,
            none => none.insert(PendingRequests::open(&self.shared.node, &self.node)?),
        };
        Ok(requests.expect_reply())
    }
}

impl PendingRequests {
    /// Opens the inbox for the replies. The tenant of the first caller pays for the inbox's memory, although all
    /// callers of the connection share the inbox.
    fn open(node: &Node, first_caller: &Node) -> Result<PendingRequests, Refused> {
        let mut inbox = Inbox::new(first_caller.clone(), node.next_session());
        inbox.open().map_err(|error| Refused::from(&error))?;
        let waiters = Arc::<ReplyWaiters>::default();
        let reply_waiters = Arc::clone(&waiters);
        let replies = node.respond(&inbox.pattern(), move |reply| reply_waiters.deliver(&reply));
        let replies = replies.map_err(|error| Refused::from(&error))?;
        Ok(PendingRequests { _replies: replies, inbox, waiters, last_number: 0 })
    }

    fn expect_reply(&mut self) -> ExpectedReply {
        self.last_number += 1;
        let (sender, reply) = oneshot::channel();
        self.waiters.lock().insert(self.last_number, sender);
        ExpectedReply {
            reply_to: format!("{}{}", self.inbox.prefix(), self.last_number),
            number: self.last_number,
            reply,
            waiters: Arc::clone(&self.waiters),
        }
    }
}

impl ReplyWaiters {
    /// Passes a reply to the call that waits for it. If no call waits, drops the reply.
    fn deliver(&self, reply: &Request<'_, '_>) {
        let record = reply.record();
        let number = record.frame.subject_tail().parse().ok();
        if let Some(requester) = number.and_then(|number: u64| self.lock().remove(&number)) {
            // This fails if the call ended just now; then the reply is dropped.
            let _ = requester.send(translate::record(record));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<v1::Record>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ExpectedReply {
    fn drop(&mut self) {
        self.waiters.lock().remove(&self.number);
    }
}
