//! Publishing: what a client sends is checked once, and appended as it is.
//!
//! Where a reliable topic is full, the session reads no further until there is room or the topic's
//! patience ends: the client's own sending stops, and nobody else notices.

use std::sync::Arc;
use std::time::Duration;

use dunlin::topic::frame::FLAG_SUBJECT;
use dunlin::topic::{
    Acknowledged, CheckedRun, Log, OnFull, Pattern, Position, ProducerMark, PublishError, PublisherPlace,
    Receipt, RunAppend, Subject, Topic,
};
use dunlin::wire::{
    self, ErrorCode, ExpectTopic, FLAG_EXPECT, FLAG_QUIET, FromNode, Kind, List, NO_PRODUCER, OpenPublisher,
    PRESENT, PublishHeader, PublishRefused, Published, PublisherOpened, PublisherRefused, PublisherTopic,
};
use dunlin::{Missing, Node, Refused, now_ns};
use hashbrown::HashMap;

use super::Session;
use super::outbound::protocol;
use super::reading::Taken;
use super::stored::Answer;
use super::translate::{acknowledged_to_wire, position_from_wire, position_to_wire};

/// The publishers of a session.
#[derive(Debug, Default)]
pub(super) struct Publishing {
    by_number: HashMap<u32, Publisher>,
    /// What the next publisher to be opened expects of its topic.
    expected: Option<Expected>,
    /// Appended, but not yet said so.
    unanswered: Vec<Published>,
    pub(super) blocked: Option<Blocked>,
    /// The user was over a rate: nothing more is read before the timer says so.
    pub(super) is_held: bool,
}

#[derive(Debug)]
enum Publisher {
    Open(Box<Open>),
    /// What is sent with its number is dropped.
    Refused,
}

#[derive(Debug)]
struct Open {
    topic: PublisherPlace,
    /// Where the topic owns more than one subject: what tails must keep to.
    pattern: Option<Pattern>,
    /// What the client asked to publish to.
    asked: Pattern,
    /// It may publish to some of the topic's subjects only.
    asks_of_each: bool,
    producer: u64,
    producer_epoch: u32,
    /// Partitions, and the first number there that was refused and has not come again: a log that has never
    /// heard of the producer would take what follows it for a beginning. A node that hands on runs of no producer opens another
    /// publisher for what was not taken, and all behind it.
    refused: Vec<(u32, u64)>,
}

/// What a publisher that is opened again expects of its topic.
#[derive(Debug)]
struct Expected {
    publisher: u32,
    create: bool,
    /// The last records that were acknowledged, by partition.
    acknowledged: Vec<(u16, Position)>,
}

impl Expected {
    /// Whether the topic keeps a state of which one of these records is no part any more.
    fn is_lost(&self, topic: &Topic) -> bool {
        let lost = |log: &Arc<Log>| {
            let mut here =
                self.acknowledged.iter().filter(|(partition, _)| *partition == log.name().partition);
            here.any(|(_, record)| log.has_lost(*record))
        };
        topic.logs().iter().any(|log| log.is_stateful() && lost(log))
    }
}

/// Where a client may publish.
struct Found {
    topic: Arc<Topic>,
    pattern: Option<Pattern>,
    asked: Pattern,
    asks_of_each: bool,
}

/// A publish that waits for room in a reliable topic.
#[derive(Debug)]
pub(super) struct Blocked {
    began_ns: u64,
    pub(super) deadline_ns: u64,
    try_again: bool,
}

impl Publishing {
    /// A reader has made room somewhere.
    pub(super) fn room(&mut self) {
        if let Some(blocked) = &mut self.blocked {
            blocked.try_again = true;
        }
    }

    /// Looks again at what open publishers may do: `look` says of what they asked for, and of what their topic owns,
    /// whether each record is to be asked about. Those that may do nothing any more are refused, and named.
    pub(super) fn recheck(
        &mut self,
        look: impl Fn(&Pattern, &Pattern) -> Result<bool, Refused>,
    ) -> Vec<(u32, Refused)> {
        let mut refused = Vec::new();
        for (&number, publisher) in &mut self.by_number {
            let Publisher::Open(open) = publisher else { continue };
            match look(&open.asked, open.pattern.as_ref().unwrap_or(&open.asked)) {
                Ok(asks_of_each) => open.asks_of_each = asks_of_each,
                Err(why) => {
                    *publisher = Publisher::Refused;
                    refused.push((number, why));
                }
            }
        }
        refused
    }

    /// Whether what waits for room is worth another try; once for each sign that it is.
    pub(super) fn may_try_again(&mut self) -> bool {
        self.blocked.as_mut().is_some_and(|blocked| std::mem::take(&mut blocked.try_again))
    }
}

impl Session {
    pub(super) fn expect_topic(&mut self, expect: &ExpectTopic<'_>) {
        let acknowledged = expect.acknowledged.iter();
        self.publishing.expected = Some(Expected {
            publisher: expect.publisher,
            create: expect.create,
            acknowledged: acknowledged.map(|of| (of.partition, position_from_wire(of.position))).collect(),
        });
    }

    pub(super) fn open_publisher(&mut self, open: &OpenPublisher<'_>) {
        let publishers = &mut self.publishing.by_number;
        if let Some(Publisher::Open(_)) = publishers.get(&open.publisher) {
            return self.fail(&protocol(format!("publisher {} is open already", open.publisher)));
        }
        publishers.remove(&open.publisher);
        let publishers_max = self.shared.limits.publishers_max;
        if self.publishing.by_number.len() >= publishers_max as usize {
            let refused = Refused::limit("publishers_max", publishers_max.into());
            return self.refuse_publisher(open.publisher, &refused);
        }
        let missing = self.if_missing(open.publisher);
        let expected = self.publishing.expected.take().filter(|of| of.publisher == open.publisher);
        let found = match self.waited.take() {
            Some(Err(refused)) => Err(refused),
            _ => self.find_topic(open.subject, missing),
        };
        let found = found.and_then(|found| match expected {
            Some(expected) if expected.is_lost(&found.topic) => {
                Err(Refused::new(ErrorCode::StateLost, found.topic.name()))
            }
            // The client knows it as somebody configured it, and the node has made another meanwhile.
            Some(expected) if !expected.create && self.node.makes_by_itself(&found.topic) => {
                Err(Refused::new(ErrorCode::TopicExists, found.topic.name()))
            }
            _ => Ok(found),
        });
        match found {
            Ok(found) => self.publisher_opened(open, found),
            Err(refused) => {
                self.publishing.by_number.insert(open.publisher, Publisher::Refused);
                self.refuse_publisher(open.publisher, &refused);
            }
        }
    }

    /// What is done where there is no topic for a publisher.
    pub(super) fn if_missing(&self, publisher: u32) -> Missing {
        let expected = self.publishing.expected.as_ref().filter(|of| of.publisher == publisher);
        let may_create = !self.from_node && expected.is_none_or(|expected| expected.create);
        if may_create { Missing::Create } else { Missing::Refuse }
    }

    fn find_topic(&mut self, subject: &str, missing: Missing) -> Result<Found, Refused> {
        let unsound =
            |error: dunlin::topic::SubjectError| Refused::new(ErrorCode::Subject, error.to_string());
        if self.inbox.holds(subject) {
            self.inbox.open().map_err(|error| Refused::from(&error))?;
        }
        let pattern = Pattern::parse(subject).map_err(unsound)?;
        let topic = self.node.owner_or_pattern(&pattern, missing).map_err(|error| Refused::from(&error))?;
        let owned = Pattern::parse(topic.pattern()).map_err(unsound)?;
        let asks_of_each = self.asks_of_each(&owned);
        let owned = (!owned.is_literal()).then_some(owned);
        Ok(Found { topic, pattern: owned, asked: pattern, asks_of_each })
    }

    fn publisher_opened(&mut self, open: &OpenPublisher<'_>, found: Found) {
        let Found { topic, pattern, asked, asks_of_each } = found;
        let producer = self.producer(open.producer);
        let last_of = |log: &Arc<Log>| match producer {
            NO_PRODUCER => None,
            producer => log.last_of_producer(producer),
        };
        let known: Vec<Option<u64>> = topic.logs().iter().map(last_of).collect();
        let known_at_all = known.iter().any(Option::is_some);
        let last_seqs: Vec<u64> = if known_at_all {
            known.into_iter().map(Option::unwrap_or_default).collect()
        } else {
            Vec::new()
        };
        if self.decoder.version() >= Kind::PublisherTopic.since() {
            self.outbound.say(FromNode::PublisherTopic(PublisherTopic {
                publisher: open.publisher,
                by_itself: self.node.makes_by_itself(&topic),
                keeps_state: topic.logs()[0].is_stateful(),
            }));
        }
        self.outbound.say(FromNode::PublisherOpened(PublisherOpened {
            publisher: open.publisher,
            partitions: topic.config().partitions,
            record_bytes_max: topic.config().record_bytes_max,
            topic: topic.name(),
            subject_prefix: &topic.logs()[0].name().subject_prefix,
            last_seqs: List::new(&last_seqs),
        }));
        let OpenPublisher { publisher, producer_epoch, .. } = *open;
        let topic = match (self.from_node, producer, producer_epoch) {
            (true, NO_PRODUCER, PRESENT) => topic.place_of_node_with_publishers(),
            (true, ..) => topic.publisher_place_of_node(),
            (false, ..) => topic.publisher_place(),
        };
        let opened = Publisher::Open(Box::new(Open {
            topic,
            pattern,
            asked,
            asks_of_each,
            producer,
            producer_epoch,
            refused: Vec::new(),
        }));
        self.publishing.by_number.insert(publisher, opened);
    }

    pub(super) fn refuse_publisher(&mut self, publisher: u32, refused: &Refused) {
        let refusal = refused.as_wire();
        self.outbound.say(FromNode::PublisherRefused(PublisherRefused { publisher, refusal }));
    }

    pub(super) fn close_publisher(&mut self, publisher: u32) {
        self.publishing.by_number.remove(&publisher);
    }

    pub(super) fn publish(&mut self, publish: &wire::Publish<'_>) -> Taken {
        let header = &publish.header;
        if let Some(Publisher::Open(open)) = self.publishing.by_number.get_mut(&header.publisher)
            && let Err(hole) = open.follows(header)
        {
            // The other node sends it again, behind what was refused before.
            let hole = if self.from_node { PublishError::OwnerAway(hole.to_string()) } else { hole };
            self.refuse(header, &Refused::from(&hole));
            return Taken::Whole;
        }
        let open = match self.publishing.by_number.get(&header.publisher) {
            Some(Publisher::Open(open)) => open,
            Some(Publisher::Refused) => return Taken::Whole,
            None => {
                let number = [u64::from(header.publisher), 0, 0];
                self.refuse(header, &Refused { numbers: number, ..Refused::new(ErrorCode::NotOpen, "") });
                return Taken::Whole;
            }
        };
        let run = match open.check(publish, &self.node) {
            Ok(run) => run,
            Err(refused) => {
                self.refuse(header, &refused);
                return Taken::Whole;
            }
        };
        if self.publishing.blocked.is_none()
            && let Err(refused) = self.admit_publish(header.count, publish.frames.len())
        {
            self.slow_down(&refused);
            self.refuse(header, &refused);
            return Taken::Whole;
        }
        let now_ns = now_ns();
        match self.append(open, publish, run, now_ns) {
            Ok(receipt) => {
                let log = Arc::clone(&open.topic.logs()[usize::from(receipt.partition)]);
                self.appended(publish, receipt, &log);
            }
            Err(full) if full.may_pass() => return self.wait_for_room(header, now_ns, full),
            Err(error) => {
                self.publishing.blocked = None;
                self.refuse(header, &Refused::from(&error));
            }
        }
        Taken::Whole
    }

    /// When the topic is full, this is on its list to be told of room, and there was none after that.
    fn append(
        &self,
        open: &Open,
        publish: &wire::Publish<'_>,
        run: CheckedRun<'_>,
        now_ns: u64,
    ) -> Result<Receipt, PublishError> {
        let header = &publish.header;
        let mark = (open.producer != NO_PRODUCER).then_some(ProducerMark {
            producer: open.producer,
            producer_epoch: open.producer_epoch,
            producer_seq: header.producer_seq,
        });
        let evicts = open.topic.config().reliable.is_some_and(|r| r.on_full == OnFull::Evict);
        let append = RunAppend {
            run,
            partition: header.partition as usize,
            mark,
            expect_last: (publish.flags & FLAG_EXPECT != 0).then_some(header.expect_seq),
            evict: evicts && self.publishing.blocked.as_ref().is_some_and(|b| now_ns >= b.deadline_ns),
            relayed: self.from_node,
        };
        match open.topic.append_run(now_ns, append) {
            Err(full) if full.may_pass() => {
                open.topic.await_room(header.partition as usize, &self.waiter);
                open.topic.append_run(now_ns, append)
            }
            other => other,
        }
    }

    fn appended(&mut self, publish: &wire::Publish<'_>, receipt: Receipt, log: &Arc<Log>) {
        self.publishing.blocked = None;
        let is_quiet = publish.flags & FLAG_QUIET != 0;
        // What its owner elsewhere refuses is told even so.
        if is_quiet && receipt.acknowledged != Acknowledged::ByOwner {
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
        if receipt.acknowledged > Acknowledged::Memory {
            let level = receipt.acknowledged;
            let answer = Answer { header: *header, published, at: receipt.position, level, is_quiet };
            return self.unstored.add(log, answer);
        }
        match self.publishing.unanswered.last_mut() {
            Some(last)
                if (last.publisher, last.partition) == (header.publisher, header.partition)
                    && !self.from_node =>
            {
                *last = published;
            }
            _ => self.publishing.unanswered.push(published),
        }
    }

    /// Says what was appended since the last time.
    pub(super) fn acknowledge(&mut self) {
        for published in self.publishing.unanswered.drain(..) {
            self.outbound.say(FromNode::Published(published));
        }
        self.acknowledge_stored();
    }

    fn wait_for_room(&mut self, header: &PublishHeader, now_ns: u64, full: PublishError) -> Taken {
        let patience = self.patience_of(header.publisher);
        let blocked = self.publishing.blocked.get_or_insert_with(|| Blocked {
            began_ns: now_ns,
            deadline_ns: now_ns + patience.as_nanos() as u64,
            try_again: false,
        });
        if now_ns < blocked.deadline_ns {
            let left_ms = (blocked.deadline_ns - now_ns).div_ceil(1_000_000);
            self.alive.set_ms(left_ms.min(self.shared.limits.heartbeat_ms.into()) as u32);
            return Taken::Blocked;
        }
        let waited = Duration::from_nanos(now_ns - blocked.began_ns);
        self.publishing.blocked = None;
        self.refuse(header, &Refused::from(&full.after(waited)));
        Taken::Whole
    }

    fn patience_of(&self, publisher: u32) -> Duration {
        match self.publishing.by_number.get(&publisher) {
            Some(Publisher::Open(open)) => open.topic.patience(),
            _ => Duration::ZERO,
        }
    }

    /// Refuses a message whose end has not come; `false` when it is no PUBLISH of an open publisher.
    pub(super) fn refuse_unfinished(&mut self, message: &[u8], refused: &Refused) -> bool {
        let header = PublishHeader::of_unfinished(message);
        let header = header.filter(|h| self.publishing.by_number.contains_key(&h.publisher));
        let Some(header) = header else { return false };
        if let Some(Publisher::Open(_)) = self.publishing.by_number.get(&header.publisher) {
            // In the order it was sent: what was appended before it is said before it.
            self.acknowledge();
            self.refuse(&header, refused);
        }
        true
    }

    pub(super) fn refuse(&mut self, header: &PublishHeader, refused: &Refused) {
        if let Some(Publisher::Open(open)) = self.publishing.by_number.get_mut(&header.publisher) {
            let comes_again = match open.producer {
                NO_PRODUCER => self.from_node && refused.code == ErrorCode::OwnerAway,
                // What is too old to be remembered was appended once: what follows it stands by itself.
                _ => refused.code != ErrorCode::DuplicateForgotten,
            };
            if comes_again {
                open.was_refused(header);
            }
        }
        self.outbound.say(FromNode::PublishRefused(PublishRefused {
            publisher: header.publisher,
            partition: header.partition,
            producer_seq: header.producer_seq,
            count: header.count,
            refusal: refused.as_wire(),
        }));
    }
}

impl Open {
    /// Whether nothing before this message was refused and has not come again.
    fn follows(&mut self, header: &PublishHeader) -> Result<(), PublishError> {
        let Some(at) = self.refused.iter().position(|(partition, _)| *partition == header.partition) else {
            return Ok(());
        };
        let (_, refused) = self.refused[at];
        if header.producer_seq > refused {
            let last = refused - 1;
            return Err(PublishError::ProducerGap { producer_seq: header.producer_seq, last });
        }
        self.refused.swap_remove(at);
        Ok(())
    }

    fn was_refused(&mut self, header: &PublishHeader) {
        let known = self.refused.iter().any(|(partition, _)| *partition == header.partition);
        let exists = (header.partition as usize) < self.topic.logs().len();
        if !known && exists {
            self.refused.push((header.partition, header.producer_seq));
        }
    }

    /// Whether the records are sound, and this topic's and this partition's.
    fn check<'a>(&self, publish: &wire::Publish<'a>, node: &Node) -> Result<CheckedRun<'a>, Refused> {
        let header = &publish.header;
        let partitions = self.topic.logs().len();
        if header.partition as usize >= partitions {
            let numbers = [u64::from(header.partition), partitions as u64, 0];
            return Err(Refused { numbers, ..Refused::new(ErrorCode::Partition, "") });
        }
        let record_bytes_max = self.topic.config().record_bytes_max as usize;
        let run = CheckedRun::check(publish.frames, header.count, record_bytes_max)
            .map_err(|error| Refused::from(&error))?;
        if run.flags() & FLAG_SUBJECT != 0 || self.pattern.is_some() {
            self.check_tails(&run, node)?;
        }
        let elsewhere = |key| self.topic.partition_of(key) != header.partition as usize;
        if partitions > 1 && run.frames().any(|frame| elsewhere(frame.key())) {
            return Err(Refused::new(ErrorCode::Batch, "a key of another partition"));
        }
        Ok(run)
    }

    fn check_tails(&self, run: &CheckedRun<'_>, node: &Node) -> Result<(), Refused> {
        let Some(pattern) = &self.pattern else {
            return Err(Refused::new(ErrorCode::Subject, "a tail, where the topic owns one subject"));
        };
        let mut checked = None;
        for frame in run.frames() {
            let tail = frame.subject_tail();
            if checked == Some(tail) {
                continue;
            }
            Subject::parse(tail).map_err(|error| Refused::new(ErrorCode::Subject, error.to_string()))?;
            if !pattern.matches_parts(pattern.literal_prefix(), tail) {
                return Err(Refused::new(ErrorCode::Subject, format!("tail {tail:?} is not the topic's")));
            }
            if self.asks_of_each {
                let may = node.may_publish_parts(pattern.literal_prefix(), tail);
                may.map_err(|error| Refused::from(&error))?;
            }
            checked = Some(tail);
        }
        Ok(())
    }
}
