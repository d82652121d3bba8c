//! Queue groups: memberships in the topics' `share` groups. A subscription with a queue joins the group in each
//! matching topic, and each record goes to one member of the queue. The topic's owner manages the membership, even if
//! it is another node.
//!
//! When a client ends a subscription, the owner ends the membership, and the session still delivers the records that it
//! has received. If this node is the owner, the member still takes up to [`DELIVERY_RECORDS_MAX`] records that wait for
//! the group.
//!
//! Records are copied into the output, at most [`DELIVERY_RECORDS_MAX`] at a time while the output has room, and count
//! as consumed from then on.
//!
//! Invariant: a group created by a NATS client ends with its last member. A later member starts with new records, as in
//! NATS.

use std::collections::BTreeSet;
use std::sync::Arc;

use dunlin::topic::{
    Event, Filter, Log, MemoryCharge, Notice, Pattern, Start, Subscribe, SubscribeError, Topic,
};
use dunlin::wire::nats::{self, NatsMessageHead};
use dunlin::{JoinError, ShareMember, ShareOptions, TopicError};

use super::access::subscription_error;
use super::encode::{RecordPosition, write_head};
use super::{CONTROL_BYTES_MAX, Session};
use crate::charging::charge_subscriptions;

/// Maximum number of records that are delivered to one member before the next member is served.
const DELIVERY_RECORDS_MAX: usize = 64;

/// A subscription's membership in the group of one topic.
#[derive(Debug)]
pub(super) struct QueueMember {
    pub(super) subscription: u32,
    share: ShareMember,
    /// Selects the topic's records that the subscription receives; `None` if it receives all.
    filter: Option<Filter>,
    /// Number of records that the log dropped before any member received them, as of the last report.
    dropped_records: u64,
    /// For each log, the sequence number of the last record that was taken.
    taken: Vec<u64>,
    /// Whether the member waits for a notification of new records.
    pub(super) is_waiting: bool,
    /// Whether the membership ends after the records that are still to be delivered.
    pub(super) is_ending: bool,
    /// Number of records that an ending member at the topic's owner may still take; `None` for other members.
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

    /// For each log of the topic, its last sequence number.
    pub(super) fn last_seqs(&self) -> Vec<u64> {
        self.topic().logs().iter().map(|log| log.last().seq).collect()
    }

    /// Whether a `PONG` has to wait for the member.
    pub(super) fn delays_pong(&self) -> bool {
        self.is_ending || !self.is_waiting || self.share.is_joining()
    }

    /// Whether the membership is accepted or refused, and the member has received all its records up to these sequence
    /// numbers, one for each log.
    pub(super) fn is_past(&self, last_seqs: &[u64]) -> bool {
        !self.is_ending
            && !self.share.is_joining()
            && (self.is_waiting || self.taken.iter().zip(last_seqs).all(|(taken, last)| taken >= last))
    }
}

/// The name of a queue's group if its members receive only some of a topic's subjects. Members with different patterns
/// form different groups.
pub(super) fn partial_group_of(queue: &str, pattern: &Pattern) -> String {
    format!("{queue}.of.{}", pattern.as_str().replace('*', "+").replace('>', "#"))
}

/// The name of the group that a queue's members join in a topic.
pub(super) fn group_of(queue: &str, pattern: &Pattern, is_partial: bool) -> String {
    if is_partial { partial_group_of(queue, pattern) } else { queue.to_owned() }
}

/// The result of delivering records to a member once.
enum DeliveryOutcome {
    Waiting,
    More,
    /// The member has skipped many expired records, and lets other sessions run before it continues.
    Skipped,
    /// The topic was deleted, or the member has received its last record.
    Ended,
    LimitReached,
}

impl Session {
    /// Joins the group of the log's topic; a subscription joins once for each topic.
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
        let taken = vec![0; share.topic().logs().len()];
        let member = QueueMember {
            subscription,
            share,
            filter,
            dropped_records: 0,
            taken,
            is_waiting: false,
            is_ending: false,
            left: None,
            _charge: charge,
        };
        self.members.insert(number, Box::new(member));
        self.member_queue.push_back(number);
        Ok(())
    }

    /// Delivers records to each queued member, one after another.
    pub(super) fn deliver_to_members(&mut self) {
        for _ in 0..self.member_queue.len() {
            if self.is_closing() || self.outbound.control.len() > CONTROL_BYTES_MAX {
                return;
            }
            let Some(number) = self.member_queue.pop_front() else { return };
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

    /// Delivers the received records of the subscription's groups, and ends its memberships. A membership at another
    /// node ends when the owner's last records have arrived. A membership at this node ends at once, or, if the output
    /// is full, after up to [`DELIVERY_RECORDS_MAX`] more records.
    pub(super) fn finish_members(&mut self, subscription: u32) {
        let members = self
            .subscriptions
            .get(&subscription)
            .map_or_else(BTreeSet::new, |subscription| subscription.members.clone());
        for number in members {
            let mut outcome = DeliveryOutcome::More;
            while self.outbound.control.len() <= CONTROL_BYTES_MAX && matches!(outcome, DeliveryOutcome::More)
            {
                outcome = self.deliver_to_member(number);
            }
            let Some(member) = self.members.get_mut(&number) else { continue };
            let is_remote = member.share.stop_delivery();
            if is_remote || matches!(outcome, DeliveryOutcome::More | DeliveryOutcome::Skipped) {
                member.is_ending = true;
                member.left = (!is_remote).then_some(DELIVERY_RECORDS_MAX);
                self.member_queue.push_back(number);
            } else {
                self.leave_group(number);
            }
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
                Err(SubscribeError::Closed) => return DeliveryOutcome::Ended,
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
                        let bytes = frame.payload().len();
                        write_head(out, &message, frame, bytes, sequenced, self.connect.headers);
                        out.extend_from_slice(frame.payload());
                        out.extend_from_slice(b"\r\n");
                        subscription.delivered += 1;
                        self.session_trace.sent(1);
                    }
                    (record.log.partition, record.seq())
                }
                Event::Notice(Notice::Deleted { .. }) => return DeliveryOutcome::Ended,
                Event::Notice(notice) => {
                    // A notice has one of two causes. If the log dropped records before any member received them, the
                    // client was too slow and is disconnected. If a member died with its records, this client did not
                    // cause the loss and stays connected.
                    let before =
                        std::mem::replace(&mut member.dropped_records, member.share.dropped_records());
                    if !subscription.is_sequenced && before < member.dropped_records {
                        self.close_slow_consumer();
                        return DeliveryOutcome::Waiting;
                    }
                    if subscription.is_sequenced {
                        let number = member.subscription;
                        self.write_notice(number, topic.name(), &notice);
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

    pub(super) fn leave_groups(&mut self) {
        let numbers: Vec<u32> = self.members.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.leave_group(number));
    }
}
