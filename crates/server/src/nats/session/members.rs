//! Memberships in NATS queue groups, which are share groups of topics. A subscription with a queue name joins a group
//! of this name in each matching topic, and each record goes to one member of the group. The topic's owner manages the
//! membership, even if it is another node.
//!
//! When a client ends a subscription, the topic's owner ends the membership, but the session still delivers the records
//! that it has already received. If this node is the owner, the member may still take up to [`DELIVERY_RECORDS_MAX`]
//! records.
//!
//! While the output has room, records are copied into it, at most [`DELIVERY_RECORDS_MAX`] at a time. A copied record
//! counts as consumed.
//!
//! Invariant: a group created by a NATS client ends with its last member. If a member joins later, the group starts
//! again with new records, as in NATS.

use std::collections::BTreeSet;
use std::sync::Arc;

use dunlin::topic::{
    EpochChanged, Event, Filter, Log, MemoryCharge, Notice, Pattern, Position, Start, Subscribe,
    SubscribeError, Topic,
};
use dunlin::wire::nats::{self, NatsMessageHead};
use dunlin::{JoinError, ShareMember, ShareOptions, TopicError};

use super::access::subscription_error;
use super::encode::{RecordPosition, write_head};
use super::notices::put_notice;
use super::subscription::LeavingSubscription;
use super::{CONTROL_BYTES_MAX, Session};
use crate::charging::charge_subscriptions;
use crate::session::turn::COMMAND_WORK;

/// Maximum number of records that a member receives before the next member's turn.
const DELIVERY_RECORDS_MAX: usize = 64;

/// A subscription's membership in the group of one topic.
#[derive(Debug)]
pub(super) struct QueueMember {
    pub(super) subscription: u32,
    share: ShareMember,
    /// Selects the records that match the subscription's pattern; `None` if all records of the topic match.
    filter: Option<Filter>,
    /// At the last check, the number of records that the log had dropped before any member received them.
    dropped_records: u64,
    /// For each log of the topic, the sequence number of the last record that the member took.
    taken: Vec<u64>,
    /// For each log, the position of the last record that was delivered; epoch 0 if none was.
    delivered: Vec<Position>,
    /// For each log, whether the member has received the notice that the log was deleted.
    deleted: Vec<bool>,
    /// Whether the member waits for a notification of new records.
    pub(super) is_waiting: bool,
    /// Whether the membership ends when the remaining records are delivered.
    pub(super) is_ending: bool,
    /// If the membership is ending and this node owns the topic: number of records that the member may still take.
    /// Otherwise `None`.
    left: Option<usize>,
    _charge: MemoryCharge,
}

impl QueueMember {
    pub(super) fn topic(&self) -> &Topic {
        self.share.topic()
    }

    pub(super) fn group(&self) -> &str {
        self.share.group()
    }

    /// The last sequence number of each log of the topic.
    pub(super) fn last_seqs(&self) -> Vec<u64> {
        self.topic().logs().iter().map(|log| log.last().seq).collect()
    }

    /// Whether a `PONG` has to wait for the member.
    pub(super) fn delays_pong(&self) -> bool {
        self.is_ending || !self.is_waiting || self.share.is_joining()
    }

    /// Whether a `PONG` need not wait for the member any longer. The owner has accepted or refused the membership, and
    /// the member has received its records up to `last_seqs`, which has a sequence number for each log.
    pub(super) fn is_past(&self, last_seqs: &[u64]) -> bool {
        !self.is_ending
            && !self.share.is_joining()
            && (self.is_waiting || self.taken.iter().zip(last_seqs).all(|(taken, last)| taken >= last))
    }
}

/// The name of a group whose members receive only some of the topic's subjects. The name contains the members' pattern,
/// so members with different patterns are in different groups.
pub(super) fn partial_group_of(queue: &str, pattern: &Pattern) -> String {
    format!("{queue}.of.{}", pattern.as_str().replace('*', "+").replace('>', "#"))
}

/// The name of the group that a subscription with this queue and pattern joins in a topic. `is_partial` says whether
/// the pattern matches only some of the topic's subjects.
pub(super) fn group_of(queue: &str, pattern: &Pattern, is_partial: bool) -> String {
    if is_partial { partial_group_of(queue, pattern) } else { queue.to_owned() }
}

/// The state of a member after records were delivered to it once.
enum DeliveryOutcome {
    Waiting,
    More,
    /// The member has skipped many expired records. Other sessions run before this member continues.
    Skipped,
    /// The topic was deleted, or the ending member has received its last record.
    Ended,
    LimitReached,
}

impl Session {
    /// Joins the group in the log's topic. Does nothing for logs of other partitions than the first, because a
    /// subscription joins once for each topic.
    pub(super) fn join(
        &mut self,
        subscription: u32,
        log: &Arc<Log>,
        filter: Option<Filter>,
        start: Start,
    ) -> Result<(), SubscribeError> {
        if log.name().partition > 0 {
            return Ok(());
        }
        let number = self.next_number();
        let member = self.name();
        let charge = charge_subscriptions(&self.node, 1, member.len())?;
        let Some(joining) = self.subscriptions.get_mut(&subscription) else { return Ok(()) };
        let queue = joining.queue.as_deref().unwrap_or_default();
        let group = group_of(queue, &joining.pattern, filter.is_some());
        let options = ShareOptions {
            member,
            start,
            registered: true,
            lasting: false,
            anywhere: true,
            ..ShareOptions::default()
        };
        let wakeup = (Arc::clone(&self.waiter), number);
        let share = self.node.join_share_with_waiter(&log.name().topic, &group, &options, wakeup);
        let share = share.map_err(|error| match error {
            JoinError::Topic(error @ TopicError::Forbidden { .. }) => error.into(),
            JoinError::Limit { limit, value } => SubscribeError::Limit { limit, value },
            other => SubscribeError::Refused(other.to_string()),
        })?;
        joining.members.insert(number);
        let logs = share.topic().logs().len();
        let (taken, delivered) = (vec![0; logs], vec![Position::default(); logs]);
        let member = QueueMember {
            subscription,
            share,
            filter,
            dropped_records: 0,
            taken,
            delivered,
            deleted: vec![false; logs],
            is_waiting: false,
            is_ending: false,
            left: None,
            _charge: charge,
        };
        self.members.insert(number, Box::new(member));
        self.member_queue.push_back(number);
        Ok(())
    }

    /// Delivers records to the queued members, in turn, as far as this turn allows, and to at least one of them.
    pub(super) fn deliver_to_members(&mut self) {
        for served in 0..self.member_queue.len() {
            if self.is_closing()
                || self.outbound.control.len() > CONTROL_BYTES_MAX
                || served > 0 && self.delivery.is_spent()
            {
                return;
            }
            let Some(number) = self.member_queue.pop_front() else { return };
            self.delivery.add(COMMAND_WORK);
            match self.deliver_to_member(number) {
                DeliveryOutcome::Waiting => {
                    self.members.get_mut(&number).into_iter().for_each(|member| member.is_waiting = true)
                }
                DeliveryOutcome::More => self.member_queue.push_back(number),
                DeliveryOutcome::Skipped => {
                    self.member_queue.push_back(number);
                    self.is_skip_budget_spent = true;
                    return;
                }
                DeliveryOutcome::Ended => self.leave_group(number),
                DeliveryOutcome::LimitReached => {
                    if let Some(member) = self.members.get(&number) {
                        self.end_subscription(member.subscription);
                    }
                }
            }
        }
    }

    /// Delivers the records that a membership of an ending subscription has received, and ends the membership. If
    /// another node owns the topic, the membership ends when the owner's last records have arrived. If this node owns
    /// the topic, it ends at once, or, if the output is full, after up to [`DELIVERY_RECORDS_MAX`] more records.
    pub(super) fn finish_member(&mut self, number: u32) {
        let mut outcome = DeliveryOutcome::More;
        while self.outbound.control.len() <= CONTROL_BYTES_MAX && matches!(outcome, DeliveryOutcome::More) {
            outcome = self.deliver_to_member(number);
        }
        let Some(member) = self.members.get_mut(&number) else { return };
        let is_remote = member.share.stop_delivery();
        if is_remote || matches!(outcome, DeliveryOutcome::More | DeliveryOutcome::Skipped) {
            member.is_ending = true;
            member.left = (!is_remote).then_some(DELIVERY_RECORDS_MAX);
            self.member_queue.push_back(number);
        } else {
            self.leave_group(number);
        }
    }

    fn deliver_to_member(&mut self, number: u32) -> DeliveryOutcome {
        for _ in 0..DELIVERY_RECORDS_MAX {
            if self.outbound.control.len() > CONTROL_BYTES_MAX {
                return DeliveryOutcome::More;
            }
            let Some(member) = self.members.get_mut(&number) else { return DeliveryOutcome::Waiting };
            let Some(subscription) = self.subscriptions.get_mut(&member.subscription) else {
                return DeliveryOutcome::Ended;
            };
            if subscription.is_over() {
                return DeliveryOutcome::LimitReached;
            }
            if member.left == Some(0) {
                return DeliveryOutcome::Ended;
            }
            match member.share.ready() {
                Ok(true) => {}
                Ok(false) if member.share.is_skipping() => return DeliveryOutcome::Skipped,
                Ok(false) if member.left.is_some() => return DeliveryOutcome::Ended,
                Ok(false) if member.share.sleep(true) => return DeliveryOutcome::Waiting,
                Ok(false) => continue,
                Err(SubscribeError::Closed) => {
                    if subscription.is_sequenced && !member.is_ending {
                        // For these logs, no notice of the topic's owner has arrived.
                        let (topic, out) = (member.share.topic(), &mut self.outbound.control);
                        let logs = topic.logs().iter().zip(&member.delivered).zip(&member.deleted);
                        for ((log, last), _) in logs.filter(|(_, is_deleted)| !**is_deleted) {
                            let deleted = Notice::Deleted { log: Arc::clone(log.name()), last: *last };
                            put_notice(out, &subscription.sid, topic.name(), &deleted);
                        }
                    }
                    return DeliveryOutcome::Ended;
                }
                Err(why) => {
                    let queue = subscription.queue.as_deref();
                    let why = format!("the group ended: {why}");
                    let text = subscription_error(&subscription.subject(), queue, &why);
                    nats::put_error(&mut self.outbound.control, &text);
                    return DeliveryOutcome::LimitReached;
                }
            }
            let topic = Arc::clone(member.share.topic());
            let consumed = match member.share.take() {
                Event::Record(record) => {
                    let frame = &record.frame;
                    let tail = frame.subject_tail();
                    if member.filter.as_ref().is_none_or(|filter| (filter.accepts)(tail)) {
                        let message = NatsMessageHead {
                            subject: [&record.log.subject_prefix, tail],
                            sid: &subscription.sid,
                            reply: frame.reply(),
                        };
                        let log = &topic.logs()[usize::from(record.log.partition)];
                        let sequenced = subscription.is_sequenced.then_some(RecordPosition {
                            epoch: record.position.epoch,
                            seq: record.seq(),
                            log,
                        });
                        self.replies.remember(frame.reply());
                        let out = &mut self.outbound.control;
                        // The member may have received no notice of the new epoch: owners send none to members at other
                        // nodes, and only one member of a group receives a notice. The record's epoch shows the change.
                        let delivered = &mut member.delivered[usize::from(record.log.partition)];
                        if subscription.is_sequenced && (1..record.position.epoch).contains(&delivered.epoch)
                        {
                            let changed = Notice::EpochChanged(EpochChanged {
                                log: Arc::clone(record.log),
                                old: delivered.epoch,
                                last_seen: delivered.seq,
                                known_through: log.end_of_epoch(*delivered, record.position.epoch),
                                new_first: record.position,
                            });
                            put_notice(out, &subscription.sid, topic.name(), &changed);
                        }
                        *delivered = record.position.max(*delivered);
                        let bytes = frame.payload().len();
                        write_head(out, &message, frame, bytes, sequenced, self.connect.headers);
                        out.extend_from_slice(frame.payload());
                        out.extend_from_slice(b"\r\n");
                        subscription.delivered += 1;
                        self.session_trace.sent(1);
                    }
                    (record.log.partition, record.seq())
                }
                Event::Notice(notice) => {
                    // The notice reports lost records. If the log dropped records before any member received them, this
                    // client was too slow and is disconnected. If another member received and lost the records, this
                    // client stays connected.
                    let before =
                        std::mem::replace(&mut member.dropped_records, member.share.dropped_records());
                    if !subscription.is_sequenced && before < member.dropped_records {
                        self.close_slow_consumer();
                        return DeliveryOutcome::Waiting;
                    }
                    match &notice {
                        Notice::EpochChanged(EpochChanged { log, new_first, .. }) => {
                            let before = Position { seq: new_first.seq.saturating_sub(1), ..*new_first };
                            member.delivered[usize::from(log.partition)] = before;
                        }
                        // The topic's other logs may still have records. After a lost connection, the owner may report
                        // the end of a log again.
                        Notice::Deleted { log, .. }
                            if std::mem::replace(&mut member.deleted[usize::from(log.partition)], true) =>
                        {
                            continue;
                        }
                        _ => {}
                    }
                    if subscription.is_sequenced {
                        put_notice(&mut self.outbound.control, &subscription.sid, topic.name(), &notice);
                    }
                    continue;
                }
            };
            let taken = &mut member.taken[usize::from(consumed.0)];
            *taken = consumed.1.max(*taken);
            member.share.consume(consumed.0, consumed.1);
            member.left = member.left.map(|left| left - 1);
        }
        DeliveryOutcome::More
    }

    pub(super) fn leave_group(&mut self, number: u32) {
        let Some(member) = self.members.remove(&number) else { return };
        if let Some(subscription) = self.subscriptions.get_mut(&member.subscription) {
            subscription.members.remove(&number);
            if subscription.has_ended() {
                self.end_subscription(member.subscription);
            }
        }
        let (topic, group) = (Arc::clone(member.share.topic()), member.share.group().to_owned());
        member.share.leave();
        self.node.end_group(topic.name(), &group);
    }

    /// Leaves all groups, in later turns if they are many.
    pub(super) fn queue_leaving_groups(&mut self) {
        let members: BTreeSet<u32> = self.members.keys().copied().collect();
        self.leaving.push(LeavingSubscription { channels: BTreeSet::new(), members });
        self.end_leaving();
    }

    pub(super) fn leave_groups(&mut self) {
        let numbers: Vec<u32> = self.members.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.leave_group(number));
    }
}
