//! The part of a group that belongs to one member: the member's notices, and its wait for events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use dunlin_topic::{
    Gap, LostRecords, MemberDeparture, MemberId, Notice, SubscribeError, Topic, Waiter, thread_waker,
};

use super::group::{EventsAvailable, Group, Sleeper};
use super::machine::GroupMachine;
use super::state::MembershipState;
use crate::clock::steady_ns;
use crate::node::Node;

/// A member of a group. Dropping the value counts as the member's death.
#[derive(Debug)]
pub(super) struct GroupMember<M: GroupMachine> {
    node: Node,
    group: Arc<Group<M>>,
    pub(super) member: MemberId,
    waiter: Arc<Waiter>,
    token: u32,
    notices: VecDeque<Notice>,
    /// Notices about logs that have ended. The member receives such a notice after all records that it took from the
    /// log.
    ends: VecDeque<Notice>,
    /// For each partition, whether the member has received the notice that the partition's log has ended.
    reported_ends: Box<[bool]>,
    lost: u64,
    /// The number of lost records that the log dropped before any member received them.
    dropped_records: u64,
    has_left: bool,
}

impl<M: GroupMachine> GroupMember<M> {
    pub(super) fn new(
        node: Node,
        group: Arc<Group<M>>,
        member: MemberId,
        (waiter, token): (Arc<Waiter>, u32),
        notices: Vec<Notice>,
    ) -> GroupMember<M> {
        let reported_ends = vec![false; group.topic.logs().len()].into();
        let notices = notices.into();
        GroupMember {
            node,
            group,
            member,
            waiter,
            token,
            notices,
            ends: VecDeque::new(),
            reported_ends,
            lost: 0,
            dropped_records: 0,
            has_left: false,
        }
    }

    pub(super) fn topic(&self) -> &Arc<Topic> {
        &self.group.topic
    }

    pub(super) fn group(&self) -> &str {
        &self.group.name
    }

    /// The number of records that the group has lost, as far as gaps have reported them to this member.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// The number of lost records that the log dropped before any member received them.
    pub(super) fn dropped_records(&self) -> u64 {
        self.dropped_records
    }

    /// Runs `op` on the group's state, and then collects this member's notices.
    pub(super) fn with<R>(&mut self, op: impl FnOnce(&mut MembershipState<M>, MemberId, u64) -> R) -> R {
        let GroupMember { node, group, member, notices, ends, reported_ends, lost, dropped_records, .. } =
            self;
        group.with(node, |state, now_ns| {
            let outcome = op(state, *member, now_ns);
            for (part, is_reported) in state.parts.iter_mut().zip(reported_ends) {
                let log = part.cursor.log();
                while let Some(range) = part.machine.take_lost(*member) {
                    *lost += range.records();
                    *dropped_records += range.dropped;
                    notices.push_back(notice(log.name(), log.last().epoch, &range));
                }
                if part.is_over() && !std::mem::replace(is_reported, true) {
                    ends.push_back(Notice::Deleted { log: Arc::clone(log.name()), last: log.last() });
                }
            }
            outcome
        })
    }

    pub(super) fn push_notices(&mut self, notices: Vec<Notice>) {
        self.notices.extend(notices);
    }

    pub(super) fn pop_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    pub(super) fn pop_end(&mut self) -> Option<Notice> {
        self.ends.pop_front()
    }

    pub(super) fn has_notice(&self) -> bool {
        !self.notices.is_empty() || !self.ends.is_empty()
    }

    /// Returns an error if the member can receive no more events.
    pub(super) fn check_open(&self) -> Result<(), SubscribeError> {
        if let Some(why) = self.group.ended() {
            return Err(why.clone());
        }
        let is_over = !self.has_notice() && self.reported_ends.iter().all(|is_reported| *is_reported);
        if is_over { Err(SubscribeError::Closed) } else { Ok(()) }
    }

    /// Makes the next event notify the waiter. Events are notices and, if `accepts_records` is set, records. Returns
    /// `false` if an event is already available.
    pub(super) fn sleep(&self, accepts_records: bool) -> bool {
        self.register_sleeper(accepts_records).is_ok()
    }

    fn register_sleeper(&self, accepts_records: bool) -> Result<Option<u64>, EventsAvailable> {
        if self.has_notice() || self.check_open().is_err() {
            return Err(EventsAvailable);
        }
        let waiter = Arc::clone(&self.waiter);
        let sleeper = Sleeper { member: self.member, waiter, token: self.token, accepts_records };
        self.group.sleep(&self.node, sleeper, &self.reported_ends)
    }

    /// Waits until an event may be available. Returns `false` if `timeout` passes first. During the wait, also handles
    /// the group's deadlines.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> bool {
        let until_ns = timeout.map_or(u64::MAX, |timeout| {
            steady_ns().saturating_add(timeout.as_nanos().min(u64::MAX.into()) as u64)
        });
        loop {
            let Ok(Some(tick_ns)) = self.register_waker(&thread_waker()) else { return true };
            park_until(tick_ns.min(until_ns));
            if self.waiter.take_ready(|_| ()) {
                return true;
            }
            if steady_ns() >= until_ns {
                self.waiter.clear_waker();
                self.group.cancel_wait(&self.node, self.member);
                return self.waiter.take_ready(|_| ());
            }
        }
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.register_waker(cx.waker()) {
            Ok(Some(_)) => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }

    /// Registers the waker. Returns the time in ns at which to check again at the latest, or `None` if a notification
    /// arrived before the waker was registered. Returns an error if an event is available already.
    fn register_waker(&self, waker: &Waker) -> Result<Option<u64>, EventsAvailable> {
        self.waiter.take_ready(|_| ());
        let tick_ns = self.register_sleeper(true)?;
        Ok(self.waiter.set_waker(waker).then_some(tick_ns.unwrap_or(u64::MAX)))
    }

    pub(super) fn leave(&mut self, departure: MemberDeparture) {
        if !std::mem::replace(&mut self.has_left, true) {
            self.group.leave(&self.node, self.member, departure);
        }
    }
}

impl<M: GroupMachine> Drop for GroupMember<M> {
    fn drop(&mut self) {
        self.leave(MemberDeparture::Died);
    }
}

fn notice(log: &Arc<dunlin_topic::LogName>, epoch: u32, lost: &LostRecords) -> Notice {
    Notice::Gap(Gap { log: Arc::clone(log), epoch, first: lost.first, last: lost.last })
}

/// Parks the thread until the monotonic clock reaches `at_ns`; `u64::MAX` means without a time limit.
fn park_until(at_ns: u64) {
    match at_ns {
        u64::MAX => thread::park(),
        at_ns => thread::park_timeout(Duration::from_nanos(at_ns.saturating_sub(steady_ns()))),
    }
}
