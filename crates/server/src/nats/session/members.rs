//! Queue groups: memberships of the topics' `share` groups. A subscription with a queue is a member in every topic that it
//! matches, and a record goes to one member of those that name the same queue. Where another node owns the topic, that one
//! keeps the membership.
//!
//! A subscription that ends in order has the owner end its membership, and reads what that one gave it before.
//!
//! Records are copied into what waits to be sent, a turn's worth at a time, and count as consumed then.
//!
//! Invariant: a group that a client of this door has made ends with its last member, so that whoever comes later begins
//! with what is published then, as in NATS.

use std::sync::Arc;

use dunlin::topic::{Charge, Event, Filter, Log, Notice, Pattern, Start, Subscribe, SubscribeError, Topic};
use dunlin::wire::nats::{self, Message};
use dunlin::{JoinError, ShareMember, ShareOptions, TopicError};

use super::access::subscription_refused;
use super::encode::{Sequenced, say_head};
use super::{CONTROL_BYTES_MAX, Session};

/// Records that a member is given before others get their turn.
const TURN_RECORDS: usize = 64;

/// A subscription's place in the group of one topic.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) subscription: u32,
    share: ShareMember,
    /// What of the topic's subjects the subscription takes.
    filter: Option<Filter>,
    /// Records that the log gave up before any member had them, of which it was told.
    given_up: u64,
    /// The last record of each log that it has had.
    taken: Vec<u64>,
    /// There is nothing for it until it is woken.
    pub(super) waits: bool,
    /// The owner gives it nothing more; what it gave is still on its way.
    pub(super) is_ending: bool,
    /// What it takes of the node's memory.
    _charge: Charge,
}

impl Member {
    pub(super) fn topic(&self) -> &Topic {
        self.share.topic()
    }

    pub(super) fn group(&self) -> &str {
        self.share.group()
    }

    /// The last record of each log of its topic.
    pub(super) fn last_seqs(&self) -> Vec<u64> {
        self.topic().logs().iter().map(|log| log.last().seq).collect()
    }

    /// Whether it was given what there was for it up to these records.
    pub(super) fn is_past(&self, last_seqs: &[u64]) -> bool {
        !self.is_ending && (self.waits || self.taken.iter().zip(last_seqs).all(|(taken, last)| taken >= last))
    }
}

/// The name of a queue's group where its members take some of a topic's subjects: those that take others are another group.
pub(super) fn group_of_some(queue: &str, pattern: &Pattern) -> String {
    format!("{queue}.of.{}", pattern.as_str().replace('*', "+").replace('>', "#"))
}

/// The group of a topic that the members of a queue join, which take all or some of its subjects.
pub(super) fn group_of(queue: &str, pattern: &Pattern, is_of_some: bool) -> String {
    if is_of_some { group_of_some(queue, pattern) } else { queue.to_owned() }
}

/// How a member's turn ended.
enum Turn {
    Waits,
    More,
    /// The topic is no more.
    Ended,
    /// The subscription has had all it wanted.
    Over,
}

impl Session {
    /// Joins the group of the log's topic; once for a topic.
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
        let charge = self.shared.charge_readers(1, member.len())?;
        let Some(of) = self.subscriptions.get_mut(&subscription) else { return Ok(()) };
        let queue = of.queue.as_deref().unwrap_or_default();
        let group = group_of(queue, &of.pattern, filter.is_some());
        let options = ShareOptions {
            member,
            start,
            registered: true,
            lasting: false,
            anywhere: true,
            ..ShareOptions::default()
        };
        let news = (Arc::clone(&self.waiter), number);
        let share = self.node.join_share_waking(&log.name().topic, &group, &options, news);
        let share = share.map_err(|error| match error {
            JoinError::Topic(error @ TopicError::Forbidden { .. }) => error.into(),
            JoinError::Limit { limit, value } => SubscribeError::Limit { limit, value },
            other => SubscribeError::Refused(other.to_string()),
        })?;
        of.members.push(number);
        let taken = vec![0; share.topic().logs().len()];
        let member = Member {
            subscription,
            share,
            filter,
            given_up: 0,
            taken,
            waits: false,
            is_ending: false,
            _charge: charge,
        };
        self.members.insert(number, Box::new(member));
        self.member_line.push_back(number);
        Ok(())
    }

    /// Gives members their turn, one after another.
    pub(super) fn deliver_to_members(&mut self) {
        for _ in 0..self.member_line.len() {
            if self.is_closing() || self.outbound.control.len() > CONTROL_BYTES_MAX {
                return;
            }
            let Some(number) = self.member_line.pop_front() else { return };
            match self.member_turn(number) {
                Turn::Waits => {
                    self.members.get_mut(&number).into_iter().for_each(|member| member.waits = true)
                }
                Turn::More => self.member_line.push_back(number),
                Turn::Ended => self.leave_group(number),
                Turn::Over => {
                    if let Some(member) = self.members.get(&number) {
                        self.end_subscription(member.subscription);
                    }
                }
            }
        }
    }

    /// Gives the subscription what there is for it in its groups, and ends its memberships; those at other nodes when what
    /// the owner gave it has come.
    pub(super) fn finish_turns(&mut self, subscription: u32) {
        let members = self.subscriptions.get(&subscription).map_or_else(Vec::new, |of| of.members.clone());
        for number in members {
            while self.outbound.control.len() <= CONTROL_BYTES_MAX
                && matches!(self.member_turn(number), Turn::More)
            {}
            match self.members.get_mut(&number) {
                Some(member) if member.share.end_in_order() => {
                    member.is_ending = true;
                    self.member_line.push_back(number);
                }
                _ => self.leave_group(number),
            }
        }
    }

    fn member_turn(&mut self, number: u32) -> Turn {
        for _ in 0..TURN_RECORDS {
            let Some(member) = self.members.get_mut(&number) else { return Turn::Waits };
            let Some(subscription) = self.subscriptions.get_mut(&member.subscription) else {
                return Turn::Ended;
            };
            if subscription.is_over() {
                return Turn::Over;
            }
            match member.share.ready() {
                Ok(true) => {}
                Ok(false) if member.share.sleep(true) => return Turn::Waits,
                Ok(false) => continue,
                Err(SubscribeError::Closed) => return Turn::Ended,
                Err(why) => {
                    let queue = subscription.queue.as_deref();
                    let why = format!("the group ended: {why}");
                    let told = subscription_refused(&subscription.subject(), queue, &why);
                    nats::refuse(&mut self.outbound.control, &told);
                    return Turn::Over;
                }
            }
            let topic = Arc::clone(member.share.topic());
            let consumed = match member.share.take() {
                Event::Record(record) => {
                    let frame = &record.frame;
                    let tail = frame.subject_tail();
                    if member.filter.as_ref().is_none_or(|filter| (filter.wants)(tail)) {
                        let message = Message {
                            subject: [&record.log.subject_prefix, tail],
                            sid: &subscription.sid,
                            reply: frame.reply(),
                        };
                        let log = &topic.logs()[usize::from(record.log.partition)];
                        let sequenced = subscription.is_sequenced.then_some(Sequenced {
                            epoch: record.position.epoch,
                            seq: record.seq(),
                            log,
                        });
                        self.replies.expect(frame.reply());
                        let out = &mut self.outbound.control;
                        let bytes = frame.payload().len();
                        say_head(out, &message, frame, bytes, sequenced, self.connect.headers);
                        out.extend_from_slice(frame.payload());
                        out.extend_from_slice(b"\r\n");
                        subscription.delivered += 1;
                        self.visit.sent(1);
                    }
                    (record.log.partition, record.seq())
                }
                Event::Notice(Notice::Deleted { .. }) => return Turn::Ended,
                Event::Notice(notice) => {
                    // What a member that died had is lost to the others through no fault of theirs.
                    let given_up = std::mem::replace(&mut member.given_up, member.share.given_up());
                    if !subscription.is_sequenced && given_up < member.given_up {
                        self.close_slow_consumer();
                        return Turn::Waits;
                    }
                    if subscription.is_sequenced {
                        let number = member.subscription;
                        self.say_notice(number, topic.name(), &notice);
                    }
                    continue;
                }
            };
            let taken = &mut member.taken[usize::from(consumed.0)];
            *taken = consumed.1.max(*taken);
            member.share.consume(consumed.0, consumed.1);
        }
        Turn::More
    }

    pub(super) fn leave_group(&mut self, number: u32) {
        let Some(member) = self.members.remove(&number) else { return };
        if let Some(subscription) = self.subscriptions.get_mut(&member.subscription) {
            subscription.members.retain(|&other| other != number);
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
