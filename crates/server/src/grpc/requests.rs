//! Publishes requests, and waits for the first reply to each. The reply subjects are in an inbox of the connection.
//!
//! The inbox is created with the connection's first request. A responder inside the node receives the replies, so that
//! the thread that publishes a reply wakes the requester directly.
//!
//! Limits: the connection's concurrent calls; a late reply is dropped.

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
const PATIENCE: Duration = Duration::from_secs(5);

/// The pending requests of one connection.
#[derive(Debug)]
pub(super) struct PendingRequests {
    /// Receives the replies. This field precedes the inbox, so that it is dropped first.
    _replies: Responder,
    inbox: Inbox,
    waiting: Arc<ReplyWaiters>,
    asked: u64,
}

/// The senders that pass replies to waiting requesters, by the number at the end of the reply subject.
#[derive(Debug, Default)]
struct ReplyWaiters(Mutex<HashMap<u64, oneshot::Sender<v1::Record>>>);

/// A reply that a requester waits for; dropping it ends the wait.
struct ExpectedReply {
    reply_to: String,
    number: u64,
    reply: oneshot::Receiver<v1::Record>,
    waiting: Arc<ReplyWaiters>,
}

/// Publishes a request, and returns the first reply.
pub(super) async fn request(
    connection: &GrpcConnection,
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
    // If the node cannot find out whether the subject has a subscriber, one is assumed to exist.
    if !node.is_heard_async(&Pattern::from(parsed)).await.unwrap_or(true) {
        return Err(Refused::new(ErrorCode::NoResponder, subject));
    }
    let target = PublishTarget::find(node, &subject, &record.payload, None).await?;
    connection.admit_publish(record.payload.len())?;
    let mut expected = connection.expect()?;
    let record = v1::Draft { reply: expected.reply_to.clone(), ..record };
    append(&target, IncomingRecord { record: &record, mark: None, expect_last: None, after: None }).await?;
    let patience = match timeout_ms {
        0 => PATIENCE,
        ms => Duration::from_millis(ms.into()),
    };
    let reply = async {
        match tokio::time::timeout(patience, &mut expected.reply).await {
            Ok(Ok(reply)) => Ok(v1::RequestResponse { reply: Some(reply) }),
            // The responder ended because the node stops.
            Ok(Err(_)) => Err(Refused::new(ErrorCode::ShuttingDown, "")),
            Err(_) => {
                let numbers = [patience.as_millis() as u64, 0, 0];
                Err(Refused { numbers, ..Refused::new(ErrorCode::NoReply, "") })
            }
        }
    };
    connection.while_let_in(reply).await
}

impl GrpcConnection {
    fn expect(&self) -> Result<ExpectedReply, Refused> {
        let mut requests = self.requests().lock().unwrap_or_else(PoisonError::into_inner);
        let requests = match &mut *requests {
            Some(requests) => requests,
            none => none.insert(PendingRequests::open(&self.shared.node)?),
        };
        Ok(requests.expect())
    }
}

impl PendingRequests {
    fn open(node: &Node) -> Result<PendingRequests, Refused> {
        let mut inbox = Inbox::new(node.clone(), node.next_session());
        inbox.open().map_err(|error| Refused::from(&error))?;
        let waiting = Arc::<ReplyWaiters>::default();
        let told = Arc::clone(&waiting);
        let replies = node.respond(&inbox.pattern(), move |reply| told.deliver(&reply));
        let replies = replies.map_err(|error| Refused::from(&error))?;
        Ok(PendingRequests { _replies: replies, inbox, waiting, asked: 0 })
    }

    fn expect(&mut self) -> ExpectedReply {
        self.asked += 1;
        let (sender, reply) = oneshot::channel();
        self.waiting.lock().insert(self.asked, sender);
        ExpectedReply {
            reply_to: format!("{}{}", self.inbox.prefix(), self.asked),
            number: self.asked,
            reply,
            waiting: Arc::clone(&self.waiting),
        }
    }
}

impl ReplyWaiters {
    /// Passes a reply to its requester if it still waits.
    fn deliver(&self, reply: &Request<'_, '_>) {
        let record = reply.record();
        let number = record.frame.subject_tail().parse().ok();
        if let Some(asker) = number.and_then(|number: u64| self.lock().remove(&number)) {
            // The requester may have ended just before; then the reply is dropped.
            let _ = asker.send(translate::record(record));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<v1::Record>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ExpectedReply {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.number);
    }
}
