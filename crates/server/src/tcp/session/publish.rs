//! Appends the batches that a client publishes. Each batch is checked once, and its bytes are appended unchanged.
//!
//! If a reliable topic is full, the session of a client reads nothing until the topic has room, or until the topic's
//! wait time is over. Other clients are not affected. The session of another node, which forwards records of many
//! clients, [parks](parked) the batch and continues to read.

mod open;
mod parked;

use std::sync::Arc;
use std::time::Duration;

use dunlin::topic::{
    AckLevel, BatchAppend, CheckedBatch, Log, OnFull, Pattern, ProducerMark, PublishError, Receipt, Topic,
};
use dunlin::wire::{
    self, ErrorCode, ExpectTopic, FLAG_EXPECT, FLAG_QUIET, FromNode, MessageKind, MessageList, NO_PRODUCER,
    OpenPublisher, PRESENT, PublishHeader, PublishRefused, Published, PublisherOpened, PublisherRefused,
    PublisherTopic,
};
use dunlin::{MissingTopicPolicy, Refused, now_ns, steady_ns};
use hashbrown::HashMap;

use self::open::{ExpectedTopic, OpenedPublisher};
use self::parked::ParkedBatches;
use super::Session;
use super::outbound::protocol;
use super::reading::HandleOutcome;
use super::stored::PendingAck;
use super::translate::{acknowledged_to_wire, position_from_wire, position_to_wire};
use crate::node_connections::NodeConnection;

/// The reason for refusing a batch that arrives over a replaced connection of another node.
const REPLACED: &str = "the node has a newer connection";

/// The publishers of a session, and the batches that wait for room or for their acknowledgements.
#[derive(Debug, Default)]
pub(super) struct SessionPublishers {
    by_number: HashMap<u32, Publisher>,
    /// The topic that the next OPEN_PUBLISHER message expects to find. The message EXPECT_TOPIC stated it.
    expected: Option<ExpectedTopic>,
    /// Acknowledgements that are due, but not sent yet.
    due_acks: Vec<Published>,
    pub(super) blocked: Option<BlockedPublish>,
    /// The batches of another node that wait for room.
    parked: ParkedBatches,
    /// Whether reading is paused because the client exceeded its publish rate. The session's timer ends the pause.
    pub(super) is_held: bool,
}

#[derive(Debug)]
enum Publisher {
    Open(Box<OpenedPublisher>),
    /// The publisher was refused. Further batches with its number are ignored.
    Refused,
}

/// The topic that was found for a new publisher, with the patterns and permissions that apply.
struct PublisherTarget {
    topic: Arc<Topic>,
    pattern: Option<Pattern>,
    requested: Pattern,
    checks_each_record: bool,
}

/// The time for which a batch waits for room in its topic, by the monotonic clock.
#[derive(Debug, Clone, Copy)]
struct RoomWait {
    began_ns: u64,
    deadline_ns: u64,
}

/// A batch that waits for room in a reliable topic, and for which the session has stopped reading.
#[derive(Debug)]
pub(super) struct BlockedPublish {
    wait: RoomWait,
    retry: bool,
}

impl RoomWait {
    fn begin(now_ns: u64, wait_max: Duration) -> RoomWait {
        let wait_max_ns = u64::try_from(wait_max.as_nanos()).unwrap_or(u64::MAX);
        RoomWait { began_ns: now_ns, deadline_ns: now_ns.saturating_add(wait_max_ns) }
    }
}

impl SessionPublishers {
    /// Remembers that a topic has room again, so that the waiting batches are tried again.
    pub(super) fn on_room(&mut self) {
        self.parked.retry();
        if let Some(blocked) = &mut self.blocked {
            blocked.retry = true;
        }
    }

    /// Checks the permissions of open publishers again. Calls `check` with the pattern that the client requested and
    /// the topic's pattern; `check` returns whether each record must be checked. Refuses the publishers for which
    /// `check` fails, and returns them.
    pub(super) fn recheck(
        &mut self,
        check: impl Fn(&Pattern, &Pattern) -> Result<bool, Refused>,
    ) -> Vec<(u32, Refused)> {
        let mut refused = Vec::new();
        for (&number, publisher) in &mut self.by_number {
            let Publisher::Open(open) = publisher else { continue };
            match check(&open.requested, open.pattern.as_ref().unwrap_or(&open.requested)) {
                Ok(checks_each_record) => open.checks_each_record = checks_each_record,
                Err(why) => {
                    *publisher = Publisher::Refused;
                    refused.push((number, why));
                }
            }
        }
        refused
    }

    /// Whether the waiting batch must be tried again. Returns true only once for each notification of room.
    pub(super) fn take_retry(&mut self) -> bool {
        self.blocked.as_mut().is_some_and(|blocked| std::mem::take(&mut blocked.retry))
    }
}

impl Session {
    pub(super) fn expect_topic(&mut self, expect: &ExpectTopic<'_>) {
        let acknowledged = expect.acknowledged.iter();
        self.publishing.expected = Some(ExpectedTopic {
            publisher: expect.publisher,
            create: expect.create,
            acknowledged: acknowledged
                .map(|record| (record.partition, position_from_wire(record.position)))
                .collect(),
        });
    }

    pub(super) fn open_publisher(&mut self, open: &OpenPublisher<'_>) {
        let publishers = &mut self.publishing.by_number;
        if let Some(Publisher::Open(_)) = publishers.get(&open.publisher) {
            return self.fail(&protocol(format!("publisher {} is already open", open.publisher)));
        }
        publishers.remove(&open.publisher);
        let publishers_max = self.shared.limits.publishers_max;
        if self.publishing.by_number.len() >= publishers_max as usize {
            let refused = Refused::limit("publishers_max", publishers_max.into());
            return self.refuse_publisher(open.publisher, &refused);
        }
        let missing = self.missing_topic_policy(open.publisher);
        let expected =
            self.publishing.expected.take().filter(|expected| expected.publisher == open.publisher);
        let found = match self.prepared.take() {
            Some(Err(refused)) => Err(refused),
            _ => self.find_topic(open.subject, missing),
        };
        let found = found.and_then(|found| match &expected {
            Some(expected) if expected.is_lost(&found.topic) => {
                Err(Refused::new(ErrorCode::StateLost, found.topic.name()))
            }
            // The client expects a topic that was created explicitly. This topic was deleted, and the node has
            // automatically created another topic with its name.
            Some(expected) if !expected.create && self.node.would_auto_create(&found.topic) => {
                Err(Refused::new(ErrorCode::TopicExists, found.topic.name()))
            }
            _ => Ok(found),
        });
        match found {
            Ok(found) => self.finish_opening(open, found, expected.as_ref()),
            Err(refused) => {
                self.publishing.by_number.insert(open.publisher, Publisher::Refused);
                self.refuse_publisher(open.publisher, &refused);
            }
        }
    }

    /// The policy for a missing topic: whether it is created, or the publisher is refused.
    pub(super) fn missing_topic_policy(&self, publisher: u32) -> MissingTopicPolicy {
        let expected = self.publishing.expected.as_ref().filter(|expected| expected.publisher == publisher);
        let may_create = !self.from_node && expected.is_none_or(|expected| expected.create);
        if may_create { MissingTopicPolicy::Create } else { MissingTopicPolicy::Refuse }
    }

    fn find_topic(&mut self, subject: &str, missing: MissingTopicPolicy) -> Result<PublisherTarget, Refused> {
        let invalid_pattern =
            |error: dunlin::topic::SubjectError| Refused::new(ErrorCode::Subject, error.to_string());
        if self.inbox.contains(subject) {
            self.inbox.open().map_err(|error| Refused::from(&error))?;
        }
        let pattern = Pattern::parse(subject).map_err(invalid_pattern)?;
        let reply_inbox = if self.from_node { self.node.reply_inbox_by_name(subject) } else { None };
        let topic = match reply_inbox {
            Some(inbox) => inbox,
            None => {
                let found = self.node.owning_topic_or_pattern(&pattern, missing);
                found.map_err(|error| Refused::from(&error))?
            }
        };
        let owned = Pattern::parse(topic.pattern()).map_err(invalid_pattern)?;
        let checks_each_record = self.checks_each_record(&owned);
        let owned = (!owned.is_literal()).then_some(owned);
        Ok(PublisherTarget { topic, pattern: owned, requested: pattern, checks_each_record })
    }

    fn finish_opening(
        &mut self,
        open: &OpenPublisher<'_>,
        found: PublisherTarget,
        expected: Option<&ExpectedTopic>,
    ) {
        let PublisherTarget { topic, pattern, requested, checks_each_record } = found;
        let producer = self.producer(open.producer);
        let last_seq_of = |log: &Arc<Log>| match producer {
            NO_PRODUCER => None,
            producer => log.last_producer_seq(producer),
        };
        let known: Vec<Option<u64>> = topic.logs().iter().map(last_seq_of).collect();
        let has_known = known.iter().any(Option::is_some);
        let last_seqs: Vec<u64> =
            if has_known { known.into_iter().map(Option::unwrap_or_default).collect() } else { Vec::new() };
        if self.decoder.version() >= MessageKind::PublisherTopic.since() {
            self.outbound.push(FromNode::PublisherTopic(PublisherTopic {
                publisher: open.publisher,
                created_automatically: self.node.would_auto_create(&topic),
                keeps_state: topic.logs()[0].is_stateful(),
            }));
        }
        self.outbound.push(FromNode::PublisherOpened(PublisherOpened {
            publisher: open.publisher,
            partitions: topic.config().partitions,
            record_bytes_max: topic.config().record_bytes_max,
            topic: topic.name(),
            subject_prefix: &topic.logs()[0].name().subject_prefix,
            last_seqs: MessageList::new(&last_seqs),
        }));
        let OpenPublisher { publisher, producer_epoch, .. } = *open;
        let topic = match (self.from_node, producer, producer_epoch) {
            (true, NO_PRODUCER, PRESENT) => topic.register_publishing_node(),
            (true, ..) => topic.uncounted_publisher(),
            (false, ..) => topic.register_publisher(),
        };
        let claims = if self.from_node { Box::default() } else { topic.claims() };
        for (partition, record) in expected.iter().flat_map(|expected| &expected.acknowledged) {
            claims.get(usize::from(*partition)).inspect(|claim| claim.record_ack(*record));
        }
        let opened = Publisher::Open(Box::new(OpenedPublisher {
            topic,
            pattern,
            requested,
            checks_each_record,
            producer,
            producer_epoch,
            claims,
            refused: Vec::new(),
        }));
        self.publishing.by_number.insert(publisher, opened);
    }

    pub(super) fn refuse_publisher(&mut self, publisher: u32, refused: &Refused) {
        let refusal = refused.as_wire();
        self.outbound.push(FromNode::PublisherRefused(PublisherRefused { publisher, refusal }));
    }

    pub(super) fn close_publisher(&mut self, publisher: u32) {
        self.publishing.by_number.remove(&publisher);
        self.publishing.parked.remove(publisher);
    }

    pub(super) fn publish(&mut self, publish: &wire::Publish<'_>) -> HandleOutcome {
        let outcome = self.handle_publish(publish);
        if !matches!(outcome, HandleOutcome::Blocked) {
            self.publishing.expected = None;
        }
        outcome
    }

    fn handle_publish(&mut self, publish: &wire::Publish<'_>) -> HandleOutcome {
        if self.from_node {
            self.publish_or_park(publish);
            return HandleOutcome::Handled;
        }
        let wait = self.publishing.blocked.as_ref().map(|blocked| blocked.wait);
        let full = self.try_publish(publish, wait);
        self.publishing.blocked = full.map(|(wait, _)| BlockedPublish { wait, retry: false });
        if self.is_blocked() { HandleOutcome::Blocked } else { HandleOutcome::Handled }
    }

    /// Appends or refuses the batch. If the batch must wait for room instead, returns its wait and the reason, and sets
    /// the timer to the end of the wait. `wait` is given for a batch that has already waited.
    fn try_publish(
        &mut self,
        publish: &wire::Publish<'_>,
        wait: Option<RoomWait>,
    ) -> Option<(RoomWait, PublishError)> {
        let header = &publish.header;
        if let Some(Publisher::Open(open)) = self.publishing.by_number.get_mut(&header.publisher)
            && let Err(gap) = open.check_order(header)
        {
            self.refuse_publish(header, &Refused::from(&gap));
            return None;
        }
        let open = match self.publishing.by_number.get(&header.publisher) {
            Some(Publisher::Open(open)) => open,
            Some(Publisher::Refused) => return None,
            None => {
                let number = [u64::from(header.publisher), 0, 0];
                self.refuse_publish(
                    header,
                    &Refused { numbers: number, ..Refused::new(ErrorCode::NotOpen, "") },
                );
                return None;
            }
        };
        let batch = match open.check(publish, &self.node) {
            Ok(batch) => batch,
            Err(refused) => {
                self.refuse_publish(header, &refused);
                return None;
            }
        };
        if wait.is_none()
            && let Err(refused) = self.admit_publish(header.count, publish.frames.len())
        {
            self.slow_down(&refused);
            self.refuse_publish(header, &refused);
            return None;
        }
        // Both steps below use the same reading of the clock. With two readings, `append` could find that the wait is
        // not over yet and evict no subscriber, while the batch is already refused.
        let tried_ns = wait.map(|_| steady_ns());
        let is_due = wait.is_some_and(|wait| tried_ns >= Some(wait.deadline_ns));
        match self.append(open, publish, batch, is_due) {
            Ok(receipt) => {
                let log = Arc::clone(&open.topic.logs()[usize::from(receipt.partition)]);
                self.appended(publish, receipt, &log);
            }
            Err(full) if full.is_retryable() => {
                let tried_ns = tried_ns.unwrap_or_else(steady_ns);
                let wait = wait.unwrap_or_else(|| RoomWait::begin(tried_ns, open.topic.room_wait_max()));
                if tried_ns < wait.deadline_ns {
                    let left_ms = (wait.deadline_ns - tried_ns).div_ceil(1_000_000);
                    self.timer.set_ms_at_latest(left_ms.min(self.shared.limits.heartbeat_ms.into()) as u32);
                    return Some((wait, full));
                }
                let waited = Duration::from_nanos(tried_ns - wait.began_ns);
                self.refuse_publish(header, &Refused::from(&full.with_waited(waited)));
            }
            Err(error) => {
                let refused = Refused::from(&error);
                self.refuse_publish(header, &refused);
                if self.node_connection.as_ref().is_some_and(NodeConnection::is_replaced) {
                    // Another connection of the same node has replaced this one. If the node still uses this
                    // connection, it must connect again.
                    self.fail(&refused);
                }
            }
        }
        None
    }

    /// Appends a batch. If the topic is full, registers the session for a notification of room, and tries once more,
    /// because room may have become free in between. `is_due` is set if the batch's wait is over.
    fn append(
        &self,
        open: &OpenedPublisher,
        publish: &wire::Publish<'_>,
        batch: CheckedBatch<'_>,
        is_due: bool,
    ) -> Result<Receipt, PublishError> {
        let (header, now_ns) = (&publish.header, now_ns());
        let mark = (open.producer != NO_PRODUCER).then_some(ProducerMark {
            producer: open.producer,
            producer_epoch: open.producer_epoch,
            producer_seq: header.producer_seq,
        });
        let evicts = open.topic.config().reliable.is_some_and(|r| r.on_full == OnFull::Evict);
        let expected = self.publishing.expected.as_ref();
        let expected = expected.filter(|expected| expected.publisher == header.publisher && self.from_node);
        let expected_claim = expected.and_then(|expected| expected.claim(header.partition));
        let append = BatchAppend {
            batch,
            claim: expected_claim.as_ref().or(open.claim(header)),
            partition: header.partition as usize,
            mark,
            expect_last: (publish.flags & FLAG_EXPECT != 0).then_some(header.expect_seq),
            evict: evicts && is_due,
            relayed: self.from_node,
        };
        let append_now = || match open.topic.append_batch(now_ns, append) {
            Err(full) if full.is_retryable() => {
                open.topic.await_room(header.partition as usize, &self.waiter);
                open.topic.append_batch(now_ns, append)
            }
            other => other,
        };
        let Some(connection) = &self.node_connection else { return append_now() };
        connection.append(append_now).unwrap_or_else(|| Err(PublishError::OwnerAway(REPLACED.to_owned())))
    }

    fn appended(&mut self, publish: &wire::Publish<'_>, receipt: Receipt, log: &Arc<Log>) {
        let is_quiet = publish.flags & FLAG_QUIET != 0;
        // A quiet batch gets no acknowledgement. But if another node owns the topic, the session waits for that node's
        // result, because the client must learn of a refusal.
        if is_quiet && receipt.acknowledged != AckLevel::ByOwner {
            return;
        }
        let header = &publish.header;
        let published = Published {
            publisher: header.publisher,
            partition: header.partition,
            through: header.last_producer_seq(),
            position: position_to_wire(receipt.position),
            acknowledged: acknowledged_to_wire(receipt.acknowledged),
            duplicate: receipt.duplicate,
        };
        if receipt.acknowledged > AckLevel::Memory {
            let level = receipt.acknowledged;
            let claim = match self.publishing.by_number.get(&header.publisher) {
                Some(Publisher::Open(open)) => open.claim(header).cloned(),
                _ => None,
            };
            let ack = PendingAck { header: *header, published, at: receipt.position, level, is_quiet, claim };
            return self.pending_acks.add(log, ack);
        }
        match self.publishing.due_acks.last_mut() {
            Some(last)
                if (last.publisher, last.partition) == (header.publisher, header.partition)
                    && !self.from_node =>
            {
                *last = published;
            }
            _ => self.publishing.due_acks.push(published),
        }
    }

    /// Sends all acknowledgements that are due.
    pub(super) fn acknowledge(&mut self) {
        for published in self.publishing.due_acks.drain(..) {
            self.outbound.push(FromNode::Published(published));
        }
        self.acknowledge_stored();
    }

    /// If the incomplete message is a PUBLISH, refuses its batch and returns `true`. Returns `false` for other
    /// messages.
    pub(super) fn refuse_unfinished(&mut self, message: &[u8], refused: &Refused) -> bool {
        let header = PublishHeader::parse_incomplete(message);
        let header = header.filter(|h| self.publishing.by_number.contains_key(&h.publisher));
        let Some(header) = header else { return false };
        if let Some(Publisher::Open(_)) = self.publishing.by_number.get(&header.publisher) {
            // The acknowledgements of earlier batches are sent before this refusal.
            self.acknowledge();
            self.refuse_publish(&header, refused);
        }
        true
    }

    pub(super) fn refuse_publish(&mut self, header: &PublishHeader, refused: &Refused) {
        if let Some(Publisher::Open(open)) = self.publishing.by_number.get_mut(&header.publisher) {
            let is_retried = match open.producer {
                NO_PRODUCER => self.from_node && refused.code == ErrorCode::OwnerAway,
                // A batch with a forgotten number is a duplicate, which was appended before. Later batches therefore
                // need not wait until this batch is sent again.
                _ => refused.code != ErrorCode::DuplicateForgotten,
            };
            if is_retried {
                open.record_refusal(header, self.from_node && refused.code == ErrorCode::OwnerAway);
            }
            if open.producer == NO_PRODUCER {
                // The batches of this publisher have no numbers. The node therefore cannot tell which batches were sent
                // before the client received this refusal, and which were sent afterwards.
                open.discard_lost_state(header);
            }
        }
        self.outbound.push(FromNode::PublishRefused(PublishRefused {
            publisher: header.publisher,
            partition: header.partition,
            producer_seq: header.producer_seq,
            count: header.count,
            refusal: refused.as_wire(),
        }));
    }
}
