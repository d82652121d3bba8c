//! The state that a client keeps from one connection to the next: subscriptions, publishers and requests.
//!
//! Messages identify subscriptions, publishers and requests by numbers, which tables map to these objects. A channel is
//! one log of a subscription: the node sends the records of the log with the number of the channel. A thread locks the
//! tables only briefly, to deliver messages or to add an entry, and never while it waits. If a thread needs several
//! locks, it takes them in this order: the reading half of the connection, the session, a publisher or an inbox, the
//! outbox.

mod deliver;
mod resume;
mod snapshots;
mod tasks;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use dunlin_topic::{LogName, Position, SubscribeError, TopicConfig};
use dunlin_wire::{FromNode, GroupKind, JoinGroup, OnGap, StartAt, WireError};
use hashbrown::HashMap;

use crate::follow::{HandleWaker, lock};
use snapshots::FollowState;
use tasks::WorkerTable;

use crate::inbox::SubscriberInbox;
use crate::limits::{CREATED_MAX, ClientLimits};
use crate::publishing::PublisherShared;
use crate::refusal::{RefusedError, subscribe_error};
use crate::relay::RelayShared;

/// When and why a client lost its connection to the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disconnection {
    /// The time at which the connection was lost, or at which the node became silent.
    pub since: Instant,
    /// Why the connection was lost, or why the last attempt to connect has failed.
    pub why: String,
}

/// The tables of a client, and what the node has said about itself.
#[derive(Debug, Default)]
pub(crate) struct ClientSession {
    pub(crate) is_up: bool,
    /// Since when and why there is no connection; `None` while there is a connection, and before the first one.
    pub(crate) disconnection: Option<Disconnection>,
    /// How many connections have been made so far.
    pub(crate) generation: u64,
    /// The protocol version that the present connection uses.
    pub(crate) version: u8,
    pub(crate) inbox_prefix: String,
    /// The number of the node's present run; 0 before the first connection. Each start of the node has a new number.
    pub(crate) node: u64,
    pub(crate) node_name: String,
    /// The cluster to which the node of the last connection belongs; `None` if it is unknown.
    cluster: Option<String>,
    channels_max: usize,
    snapshot_bytes_max: usize,
    /// The number that was last assigned to a handle or a request.
    number_last: u32,
    /// Whether all numbers were assigned once, so that the next number may still be in use.
    numbers_repeat: bool,
    subscriptions: HashMap<u32, Subscription>,
    channels: HashMap<u32, Channel>,
    publishers: HashMap<u32, Arc<PublisherShared>>,
    relays: HashMap<u32, Arc<RelayShared>>,
    requests: HashMap<u32, Arc<ResponseSlot>>,
    /// The topics that this client has created, at most [`CREATED_MAX`].
    created: HashMap<String, TopicConfig>,
    workers: WorkerTable,
}

/// The fields of the message that begins a subscription, or continues it on a new connection.
#[derive(Debug)]
pub(crate) struct SubscriptionRequest {
    pub(crate) pattern: String,
    pub(crate) name: String,
    pub(crate) start: StartAt,
    pub(crate) on_gap: OnGap,
    pub(crate) registered: bool,
    /// How the node sends the states of state topics; `None` if the subscriber does not follow states.
    pub(crate) follow: Option<FollowRequest>,
    pub(crate) credit_bytes: u64,
    /// Whether the subscriber needs the position in each log at which the subscription began.
    pub(crate) reports_start: bool,
    /// For the feed of a node's mirror: the topic, and an epoch of its placement.
    pub(crate) placement: Option<(String, u32)>,
    pub(crate) group: Option<GroupJoinRequest>,
}

impl SubscriptionRequest {
    fn returns_unconsumed(&self) -> bool {
        let returns_unconsumed = |of: &GroupJoinRequest| {
            of.kind == GroupKind::Share && of.attempts_max & JoinGroup::RETURNS_UNCONSUMED > 0
        };
        self.group.as_ref().is_some_and(returns_unconsumed)
    }
}

/// The fields of the message FOLLOW, with which a subscriber of state topics requests their states.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FollowRequest {
    pub(crate) start: bool,
    pub(crate) on_gap: bool,
    pub(crate) conflate: bool,
    pub(crate) test_loss_every: u32,
}

/// The fields that the message JOIN_GROUP has in addition to those of SUBSCRIBE.
#[derive(Debug)]
pub(crate) struct GroupJoinRequest {
    pub(crate) kind: GroupKind,
    pub(crate) group: String,
    pub(crate) claim_ms: u32,
    pub(crate) attempts_max: u32,
    pub(crate) dead_letter: String,
}

#[derive(Debug)]
struct Subscription {
    request: SubscriptionRequest,
    inbox: Arc<SubscriberInbox>,
    /// For each log without a channel, the position after which the subscriber continues; `None` if it needs the state
    /// of the log instead.
    logs: HashMap<(String, u16), (Arc<LogName>, Option<Position>)>,
    /// The current channel of each log.
    channels: HashMap<Arc<LogName>, u32>,
    /// For each log that will receive a new channel, the number of the channel that will be replaced.
    replaced_channels: HashMap<(String, u16), u32>,
    /// Whether the node has confirmed the subscription with SUBSCRIBED, on this connection or before. From then on,
    /// each log has a position in `logs` or a channel in `channels`.
    is_subscribed: bool,
    /// How many bytes were received on earlier connections.
    received_before: u64,
    claims: Claims,
}

/// How many records a member of a `work` group has requested and received.
#[derive(Debug, Default)]
struct Claims {
    requested: u64,
    delivered: u64,
    /// How many records were received on earlier connections. The node of the present connection does not count these
    /// records.
    delivered_before: u64,
}

#[derive(Debug)]
struct Channel {
    subscription: u32,
    inbox: Arc<SubscriberInbox>,
    log: Arc<LogName>,
    at: Position,
    /// The sequence number up to which records were delivered or reported as missing. Records after it, up to `at`,
    /// were not for this subscriber.
    delivered_seq: u64,
    /// Whether the subscription belongs to a group. Members of a group may receive records in any order.
    in_group: bool,
    state: FollowState,
}

/// The place where the outcome of a request is stored. The caller waits for it there.
#[derive(Default)]
pub(crate) struct ResponseSlot {
    pub(crate) waker: HandleWaker,
    outcome: Mutex<Option<RequestOutcome>>,
    /// The function that receives the outcome, if no thread waits for it.
    callback: Mutex<Option<Callback>>,
    /// The encoded message of the request, if the request can be sent again.
    message: OnceLock<Vec<u8>>,
    /// Whether the next connection has to send the request, because no node has handled it yet.
    is_unsent: AtomicBool,
}

/// A function that receives the outcome of a request. It runs on the thread that reads the connection, and must not
/// block.
pub(crate) type Callback = Box<dyn FnOnce(RequestOutcome) + Send>;

/// The outcome of a request. A response with content is kept as the bytes that were received.
#[derive(Debug, Clone)]
pub(crate) enum RequestOutcome {
    Done,
    Message(Vec<u8>),
    Refused(RefusedError),
    Lost(String),
}

impl ResponseSlot {
    pub(crate) fn with_callback(callback: Callback) -> ResponseSlot {
        ResponseSlot { callback: Mutex::new(Some(callback)), ..ResponseSlot::default() }
    }

    pub(crate) fn fail(&self, why: &str) {
        self.complete(RequestOutcome::Lost(why.to_owned()));
    }

    /// Keeps the message of the request. If `is_unsent` is set, the next connection sends it.
    pub(crate) fn store_message(&self, message: Vec<u8>, is_unsent: bool) {
        let _ = self.message.set(message);
        self.is_unsent.store(is_unsent, Ordering::Relaxed);
    }

    /// Makes the next connection send the request again, if the request's message was kept. The caller knows that no
    /// node has handled the request.
    fn mark_unsent(&self) {
        self.is_unsent.store(self.message.get().is_some(), Ordering::Relaxed);
    }

    /// Returns the message of a request that the next connection has to send, and marks the request as sent. Returns
    /// `None` for any other request.
    fn take_unsent(&self) -> Option<&Vec<u8>> {
        self.message.get().filter(|_| self.is_unsent.swap(false, Ordering::Relaxed))
    }

    pub(crate) fn is_unsent(&self) -> bool {
        self.is_unsent.load(Ordering::Relaxed)
    }

    pub(crate) fn is_answered(&self) -> bool {
        lock(&self.outcome).is_some()
    }

    pub(crate) fn take(&self) -> Option<RequestOutcome> {
        lock(&self.outcome).take()
    }

    fn complete(&self, outcome: RequestOutcome) {
        if let Some(callback) = lock(&self.callback).take() {
            return callback(outcome);
        }
        *lock(&self.outcome) = Some(outcome);
        self.waker.wake();
    }
}

impl fmt::Debug for ResponseSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseSlot").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

/// Why a connection has to be ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the node violated the protocol: {0}")]
    Wire(#[from] WireError),
    #[error("the node sent {sent} bytes where {allowed} were allowed")]
    Credit { sent: u64, allowed: u64 },
    #[error("the node announced more than {0} logs")]
    Channels(usize),
    #[error("the node sent a malformed message to a worker: {0}")]
    Orders(#[from] dunlin_tasks::TaskDecodeError),
    #[error("the node ended the connection: {0}")]
    Error(RefusedError),
    #[error("the node is shutting down: {reason}")]
    Goodbye { reconnect_after_ms: u32, reason: RefusedError },
}

impl ClientSession {
    pub(crate) fn new(limits: &ClientLimits) -> ClientSession {
        let ClientLimits { channels_max, snapshot_bytes_max, .. } = *limits;
        ClientSession { channels_max, snapshot_bytes_max, ..ClientSession::default() }
    }

    /// Returns a number that no handle or request of this client uses at present. A number is assigned a second time
    /// only after all numbers were assigned once.
    pub(crate) fn next_number(&mut self) -> u32 {
        loop {
            self.number_last = self.number_last.wrapping_add(1);
            self.numbers_repeat |= self.number_last == 0;
            if !self.numbers_repeat || !self.is_used(self.number_last) {
                return self.number_last;
            }
        }
    }

    fn is_used(&self, number: u32) -> bool {
        number == 0
            || self.subscriptions.contains_key(&number)
            || self.publishers.contains_key(&number)
            || self.relays.contains_key(&number)
            || self.requests.contains_key(&number)
            || self.workers.has_request(number)
    }

    /// Remembers that this client has created a topic.
    pub(crate) fn topic_created(&mut self, name: &str, config: &TopicConfig) {
        if self.created.len() < CREATED_MAX || self.created.contains_key(name) {
            self.created.insert(name.to_owned(), config.clone());
        }
    }

    /// Forgets a topic that this client has deleted.
    pub(crate) fn topic_deleted(&mut self, name: &str) {
        self.created.remove(name);
    }

    pub(crate) fn add_publisher(&mut self, publishing: Arc<PublisherShared>) {
        self.publishers.insert(publishing.number, publishing);
    }

    pub(crate) fn remove_publisher(&mut self, number: u32) {
        self.publishers.remove(&number);
        self.relays.remove(&number);
    }

    pub(crate) fn add_relay(&mut self, relay: Arc<RelayShared>) {
        self.relays.insert(relay.number, relay);
    }

    pub(crate) fn add_request(&mut self, number: u32, slot: Arc<ResponseSlot>) {
        self.requests.insert(number, slot);
    }

    pub(crate) fn remove_request(&mut self, number: u32) {
        self.requests.remove(&number);
    }

    /// Adds a request of a worker. `attaches` says whether it is the request that attaches the worker to the node.
    pub(crate) fn add_worker_request(
        &mut self,
        number: u32,
        inbox: &Arc<crate::tasks::WorkerInbox>,
        attaches: bool,
    ) {
        self.workers.add(number, inbox, attaches);
    }

    /// Removes a worker that has ended.
    pub(crate) fn remove_worker(&mut self, inbox: &Arc<crate::tasks::WorkerInbox>) {
        self.workers.remove(inbox);
    }

    /// Delivers one message to the handle that it is for. The message's bytes are `chunk[start..end]`.
    #[inline]
    pub(crate) fn deliver_message(
        &mut self,
        message: &FromNode<'_>,
        chunk: &Arc<Vec<u8>>,
        start: usize,
        end: usize,
    ) -> Result<(), ConnectionError> {
        if let FromNode::Batch(batch) = message {
            self.check_credit(batch.header.topic_id)?;
            return Ok(self.deliver_batch(batch, chunk, start, end)?);
        }
        self.deliver_other(message, chunk, start, end)
    }

    fn deliver_other(
        &mut self,
        message: &FromNode<'_>,
        chunk: &Arc<Vec<u8>>,
        start: usize,
        end: usize,
    ) -> Result<(), ConnectionError> {
        let cost = (end - start) as u64;
        let bytes = || chunk[start..end].to_vec();
        match message {
            FromNode::Published(published) => {
                self.publishers.get(&published.publisher).inspect(|p| p.handle_published(published));
                self.relays.get(&published.publisher).inspect(|r| r.handle_published(published));
            }
            FromNode::PublishRefused(refused) => {
                self.publishers.get(&refused.publisher).inspect(|p| p.handle_publish_refused(refused));
                self.relays.get(&refused.publisher).inspect(|r| r.handle_publish_refused(refused));
            }
            FromNode::PublisherOpened(opened) => {
                self.publishers.get(&opened.publisher).inspect(|p| p.handle_opened(opened));
            }
            FromNode::PublisherTopic(topic) => {
                self.publishers.get(&topic.publisher).inspect(|p| p.handle_topic(*topic));
            }
            FromNode::PublisherRefused(refused) => {
                self.publishers.get(&refused.publisher).inspect(|p| p.handle_refused(&refused.refusal));
                self.relays.get(&refused.publisher).inspect(|r| r.handle_refused(&refused.refusal));
            }
            FromNode::Deliver(deliver) => {
                self.check_credit(deliver.channel)?;
                self.deliver_claimed(deliver, chunk, start, end);
            }
            FromNode::Log(log) => {
                if self.channels.len() >= self.channels_max {
                    return Err(ConnectionError::Channels(self.channels_max));
                }
                self.open_channel(log);
            }
            FromNode::Gap(gap) => self.handle_gap(gap, cost),
            FromNode::Lagging(lagging) => self.handle_lagging(lagging, cost),
            FromNode::EpochChanged(changed) => self.handle_epoch_changed(changed, cost),
            FromNode::Advance(advance) => self.handle_advance(advance, cost),
            FromNode::Deleted(deleted) => self.handle_deleted(deleted),
            FromNode::Snapshot(part) => self.receive_snapshot_part(part, cost)?,
            FromNode::Checksum(checksum) => self.handle_checksum(checksum, cost),
            FromNode::Publishers(publishers) => self.handle_publishers(publishers, cost),
            FromNode::Heartbeat(heartbeat) => self.handle_heartbeat(heartbeat),
            FromNode::Subscribed(subscribed) => self.handle_subscribed(subscribed.subscription),
            FromNode::SubscriptionEnded(ended) => {
                if let Some(subscription) = self.subscriptions.get(&ended.subscription) {
                    subscription.inbox.end(subscribe_error(&ended.refusal, &subscription.request.pattern));
                    // A member of a group with `returns_unconsumed` still has to report which records it has consumed.
                    if !subscription.request.returns_unconsumed() {
                        self.remove_subscription(ended.subscription);
                    }
                }
            }
            FromNode::Done { request } => self.complete_request(*request, RequestOutcome::Done),
            FromNode::RequestRefused(refused) if self.workers.handle_refusal(refused) => {}
            FromNode::RequestRefused(refused) => {
                self.complete_request(
                    refused.request,
                    RequestOutcome::Refused(RefusedError::new(&refused.refusal)),
                );
            }
            FromNode::Topics(topics) => {
                self.complete_request(topics.request, RequestOutcome::Message(bytes()))
            }
            FromNode::Topic(topic) => self.complete_request(topic.request, RequestOutcome::Message(bytes())),
            FromNode::Settings(settings) => {
                self.complete_request(settings.request, RequestOutcome::Message(bytes()))
            }
            FromNode::ControlResult(result) => {
                self.complete_request(result.request, RequestOutcome::Message(bytes()))
            }
            FromNode::TasksResult(result) if self.workers.handle_result(result)? => {}
            FromNode::TasksResult(result) => {
                self.complete_request(result.request, RequestOutcome::Message(bytes()))
            }
            FromNode::TaskOrders(orders) => self.workers.dispatch_orders(orders)?,
            FromNode::Settled(settled) => {
                self.complete_request(settled.request, RequestOutcome::Message(bytes()))
            }
            FromNode::Error(refusal) => return Err(ConnectionError::Error(RefusedError::new(refusal))),
            FromNode::Goodbye(goodbye) => {
                return Err(ConnectionError::Goodbye {
                    reconnect_after_ms: goodbye.reconnect_after_ms,
                    reason: RefusedError::new(&goodbye.reason),
                });
            }
            FromNode::Batch(_) | FromNode::Pong(_) => {}
            FromNode::Welcome(_) | FromNode::Refused(_) => {
                return Err(ConnectionError::Wire(WireError::UnknownKind(message.kind() as u8)));
            }
        }
        Ok(())
    }

    #[inline]
    fn check_credit(&self, channel: u32) -> Result<(), ConnectionError> {
        self.channels.get(&channel).map_or(Ok(()), |channel| channel.inbox.check_credit())
    }

    fn complete_request(&mut self, request: u32, outcome: RequestOutcome) {
        if let Some(slot) = self.requests.remove(&request) {
            slot.complete(outcome);
        }
    }

    /// Removes a subscription from the client's tables. Its subscriber can still read the items that are in its inbox.
    pub(crate) fn remove_subscription(&mut self, number: u32) {
        self.subscriptions.remove(&number);
        self.channels.retain(|_, channel| channel.subscription != number);
    }

    /// Ends all handles, because the client closes.
    pub(crate) fn close(&mut self) {
        for subscription in std::mem::take(&mut self.subscriptions).into_values() {
            subscription.inbox.end(SubscribeError::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_number_is_not_reused_while_its_request_is_pending() {
        let mut session = ClientSession::default();
        let first = session.next_number();
        session.add_request(first, Arc::default());
        session.number_last = u32::MAX - 1;
        assert_eq!(session.next_number(), u32::MAX);
        // `next_number` never returns 0.
        assert_eq!(session.next_number(), first + 1);
        session.remove_request(first);
        session.number_last = u32::MAX;
        assert_eq!(session.next_number(), first);
    }
}
