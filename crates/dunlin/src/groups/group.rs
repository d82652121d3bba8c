//! A group of members that share a topic's records. It consists of a state machine for each partition of the topic, and
//! of a list of the members that sleep.
//!
//! Invariants:
//! - Every operation goes through [`Group::with`]. `with` first handles claims and delays that have expired, then runs
//!   the operation, and then wakes members that can take records.
//! - A member begins to sleep only if it has received everything that is available. The check and the start of the
//!   sleep happen under the lock of `state`.
//! - A published record wakes one member. The woken member takes records, and wakes the next member if there are more
//!   records.
//! - Locks are taken in this order: `state`, `sleepers`. A waker that a log calls takes only `sleepers`, because the
//!   thread that calls the waker may hold another group's `state`.
//! - Between two operations, the group uses no segment of a log, so that logs can drop all segments.
//! - One operation skips a limited number of expired records ([`SkipBudget`]). At this limit, the operation ends, and
//!   the member starts another operation instead of sleeping.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Wake, Waker};

use dunlin_topic::{
    MemberDeparture, MemberId, Notice, SkipBudget, SubscribeError, SubscribeOptions, Topic, Waiter,
};

use super::dead_letters::{LetterSender, LetterTarget};
use super::delivered::DeliveredRanges;
use super::error::JoinError;
use super::machine::GroupMachine;
use super::options::EarlierMembership;
use super::partition::{self, GroupPartition};
use super::state::MembershipState;
use super::{GroupInfo, GroupKind};
use crate::clock::{now_ns, steady_ns};
use crate::node::Node;

/// A group of a topic, with the state machine `M` for each partition.
#[derive(Debug)]
pub(crate) struct Group<M> {
    pub(super) topic: Arc<Topic>,
    pub(super) name: String,
    state: Mutex<MembershipState<M>>,
    sleepers: Mutex<VecDeque<Sleeper>>,
    /// The waiter that the logs notify of new records while members sleep.
    pub(super) logs: Arc<Waiter>,
    pub(super) alarm: Waker,
    /// Whether the group continues to exist after its last member has left.
    pub(super) is_lasting: bool,
    /// The destination of the group's dead letters; `None` if the group drops them.
    pub(super) dead_letters: Option<LetterTarget>,
    /// The time of the group's next deadline.
    due_ns: AtomicU64,
    /// Set when the topic has moved to another owner. Members receive the remaining records, and then this error.
    moved: OnceLock<SubscribeError>,
    /// The reason why the group has ended, if it has.
    ended: OnceLock<SubscribeError>,
}

/// A sleeping member, which waits for records or notices.
#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) member: MemberId,
    pub(super) waiter: Arc<Waiter>,
    pub(super) token: u32,
    /// Whether a record wakes the member. A notice always does.
    pub(super) accepts_records: bool,
}

struct Alarm<M>(Weak<Group<M>>);

impl<M: GroupMachine> Wake for Alarm<M> {
    fn wake(self: Arc<Self>) {
        if let Some(group) = self.0.upgrade() {
            group.wake_one();
        }
    }
}

impl<M> Drop for Group<M> {
    /// Removes the group's cursors from the logs' sleepers. Otherwise the logs would count the cursors as subscribers
    /// until the next record.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (part, token) in state.parts.iter_mut().zip(0..) {
            part.cursor.leave(&self.logs, token);
        }
    }
}

impl<M: GroupMachine> Group<M> {
    pub(super) fn new(
        topic: Arc<Topic>,
        name: String,
        options: &SubscribeOptions,
        earlier: Option<EarlierMembership>,
        (is_lasting, dead_letters): (bool, Option<LetterTarget>),
        machine: impl Fn(u64) -> M,
    ) -> Result<(Arc<Group<M>>, Vec<Notice>), JoinError> {
        let mut notices = Vec::new();
        let part = |log| {
            let cursor = match earlier {
                Some(earlier) => partition::cursor_after(log, options, earlier, &mut notices),
                None => partition::cursor(log, options),
            };
            GroupPartition::new(log, cursor?, &machine, &mut notices)
        };
        let parts = topic.logs().iter().map(part).collect::<Result<_, SubscribeError>>()?;
        let group = Arc::new_cyclic(|group| Group {
            topic,
            name,
            state: Mutex::new(MembershipState::new(parts, now_ns(), steady_ns())),
            sleepers: Mutex::default(),
            logs: Waiter::new(),
            alarm: Waker::from(Arc::new(Alarm(Weak::clone(group)))),
            is_lasting,
            dead_letters,
            due_ns: AtomicU64::new(u64::MAX),
            moved: OnceLock::new(),
            ended: OnceLock::new(),
        });
        Ok((group, notices))
    }

    /// Runs `op` on the group's state; its second argument is the present time of the monotonic clock. Then wakes
    /// members that can now receive something.
    pub(super) fn with<R>(&self, node: &Node, op: impl FnOnce(&mut MembershipState<M>, u64) -> R) -> R {
        let now_ns = steady_ns();
        let (outcome, woken) = {
            let mut state = self.lock();
            self.logs.take_ready(|part| state.parts[part as usize].cursor.handle_wake());
            state.skips = SkipBudget::default();
            state.parts.iter_mut().for_each(|part| part.tick(now_ns));
            let outcome = op(&mut state, now_ns);
            state.send_dead_letters(node, self);
            state.release_expired_registration(now_ns);
            state.parts.iter_mut().for_each(GroupPartition::release);
            if let Some(why) = self.moved.get().filter(|_| state.is_drained()) {
                let _ = self.ended.set(why.clone());
            }
            let due_ns = state.next_tick_ns().unwrap_or(u64::MAX);
            self.due_ns.store(due_ns, Ordering::Relaxed);
            node.groups_of_node().deadline.report(due_ns);
            (outcome, self.take_sleepers_to_wake(&mut state))
        };
        woken.iter().for_each(Sleeper::wake);
        outcome
    }

    pub(super) fn join(&self, node: &Node, member_name: &str) -> Result<MemberId, JoinError> {
        self.with(node, |state, _| {
            state.register(&self.name)?;
            let mut member = MemberId(0);
            // All partitions have the same number of members. Therefore, either all partitions accept the new member or
            // none does.
            for part in &mut state.parts {
                member = part.machine.join()?;
            }
            state.members.insert(member, member_name.to_owned());
            Ok(member)
        })
    }

    /// Called when a returning member joins: one that was in a group with this name before, at this owner or at another
    /// one. If the member's earlier membership ended before [`Log::process_start`](dunlin_topic::Log::process_start),
    /// the group from then on delivers all records since that start, even if a newer member joined first.
    pub(super) fn include_records_after(&self, node: &Node, earlier: EarlierMembership) {
        self.with(node, |state, _| {
            state.parts.iter_mut().for_each(|part| part.include_records_after(earlier))
        });
    }

    /// Sets the records that earlier groups with this name have delivered, one entry for each log.
    pub(super) fn set_delivered_before(&self, node: &Node, delivered: Vec<DeliveredRanges>) {
        self.with(node, |state, _| {
            state
                .parts
                .iter_mut()
                .zip(delivered)
                .for_each(|(part, delivered)| part.delivered_before = delivered);
        });
    }

    /// The records that were delivered by this group and by earlier groups with its name, one entry for each log. Call
    /// this only for a group without members.
    pub(super) fn delivered_ranges(&self, node: &Node) -> Vec<DeliveredRanges> {
        self.with(node, |state, _| state.parts.iter().map(GroupPartition::delivered_ranges).collect())
    }

    pub(super) fn leave(&self, node: &Node, member: MemberId, departure: MemberDeparture) {
        self.remove_sleeper(member);
        self.with(node, |state, now_ns| {
            state.parts.iter_mut().for_each(|part| part.machine.leave(member, departure, now_ns));
            state.members.remove(&member);
            state.idle_since_ns = now_ns;
        });
    }

    /// Counts the records that the log dropped before a member claimed them. These records are lost.
    pub(super) fn tick(&self, node: &Node) {
        self.with(node, |state, _| {
            for part in &mut state.parts {
                let oldest_seq = part.cursor.log().info().oldest_seq;
                part.machine.drop_before(oldest_seq);
            }
        });
    }

    /// Ends the group with the error `why`, which its members receive.
    pub(super) fn end(&self, why: &SubscribeError) {
        let _ = self.ended.set(why.clone());
        let woken: Vec<Sleeper> = self.sleepers().drain(..).collect();
        woken.iter().for_each(Sleeper::wake);
    }

    /// Removes the group from the subscribers for which publishers of a reliable topic wait.
    pub(super) fn unregister(&self) {
        self.lock().parts.iter_mut().for_each(|part| part.cursor.unregister());
    }

    /// Ends the group because its topic has moved to another owner. Members first receive the records of the epochs
    /// through `last_epoch`.
    pub(super) fn end_after(&self, node: &Node, last_epoch: u32, why: &SubscribeError) {
        let _ = self.moved.set(why.clone());
        self.with(node, |state, _| {
            state.parts.iter_mut().for_each(|part| part.epochs.end_after(last_epoch));
        });
        let woken: Vec<Sleeper> = self.sleepers().drain(..).collect();
        woken.iter().for_each(Sleeper::wake);
    }

    /// The reason why the group has ended; `None` if it has not.
    pub(super) fn ended(&self) -> Option<&SubscribeError> {
        self.ended.get()
    }

    /// Whether a deadline has passed, or the outcome of a dead letter may be known.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns() <= now_ns
    }

    /// The time of the next deadline; 0 if the outcome of a dead letter may be known.
    pub(super) fn due_ns(&self) -> u64 {
        let has_outcome = self.dead_letters.as_ref().is_some_and(LetterTarget::is_due);
        if has_outcome { 0 } else { self.due_ns.load(Ordering::Relaxed) }
    }

    /// Whether the group may still send dead letters, although no member can join it any more.
    pub(super) fn may_send_dead_letters(&self) -> bool {
        let state = self.lock();
        let has_letters = || state.parts.iter().any(|part| part.dead_letters() > 0);
        self.dead_letters.is_some() && (!state.members.is_empty() || has_letters())
    }

    /// Drops all dead letters whose storage is not confirmed, and reports their number.
    pub(super) fn drop_dead_letters(&self, node: &Node) {
        let Some(target) = &self.dead_letters else { return };
        let (count, refusal): (u64, _) = {
            let mut state = self.lock();
            let refusal = state.parts.iter().find_map(|part| part.letters.refusal());
            (state.parts.iter_mut().map(GroupPartition::drop_dead_letters).sum(), refusal)
        };
        if count > 0 {
            let why = refusal.unwrap_or_else(|| "the owner of their topic did not respond".to_owned());
            let sender = LetterSender { node, topic: self.topic.name(), group: &self.name, target };
            sender.report_dropped(count, format!("the group has ended: {why}"));
        }
    }

    /// The time since which the group has no members; `None` if it has members.
    pub(super) fn idle_since_ns(&self, node: &Node) -> Option<u64> {
        self.with(node, |state, _| state.members.is_empty().then_some(state.idle_since_ns))
    }

    pub(super) fn info(&self, node: &Node, kind: GroupKind) -> GroupInfo {
        self.with(node, |state, _| GroupInfo {
            name: self.name.clone(),
            kind,
            members: state.members.values().cloned().collect(),
            waiting: state.parts.iter().map(GroupPartition::waiting).sum(),
            claimed: state.parts.iter().map(|part| u64::from(part.machine.claims())).sum(),
            pending_dead_letters: state.parts.iter().map(|part| part.dead_letters() as u64).sum(),
            dead_letter_error: state.parts.iter().find_map(|part| part.letters.refusal()),
        })
    }

    /// Adds a member to the sleeping members. If the member must check again even without being woken, returns the time
    /// for this check, in ns; otherwise `None`. Returns an error if an event is available already. `reported_ends` says
    /// for each partition whether the member has received the notice that the log has ended.
    pub(super) fn sleep(
        &self,
        node: &Node,
        sleeper: Sleeper,
        reported_ends: &[bool],
    ) -> Result<Option<u64>, EventsAvailable> {
        self.with(node, |state, _| {
            if state.has_events_for(&sleeper, reported_ends) {
                return Err(EventsAvailable);
            }
            let mut sleepers = self.sleepers();
            // If the group has ended already, nothing would wake this member.
            if self.ended().is_some() {
                return Err(EventsAvailable);
            }
            match sleepers.iter_mut().find(|other| other.member == sleeper.member) {
                Some(same) => *same = sleeper,
                None => sleepers.push_back(sleeper),
            }
            Ok(state.next_tick_ns())
        })
    }

    /// Ends a member's wait. If a notification has already woken the member, wakes another member in its place.
    pub(super) fn cancel_wait(&self, node: &Node, member: MemberId) {
        if !self.remove_sleeper(member) || self.logs.is_ready() {
            self.with(node, |_, _| ());
        }
    }

    /// Removes a member from the list of sleeping members. Returns `false` if the member was not in the list.
    fn remove_sleeper(&self, member: MemberId) -> bool {
        let mut sleepers = self.sleepers();
        let before = sleepers.len();
        sleepers.retain(|sleeper| sleeper.member != member);
        if !sleepers.iter().any(|sleeper| sleeper.accepts_records) {
            // No member waits for records now. Without a waker, a log that is about to wake this group wakes the log's
            // next subscriber instead.
            self.logs.clear_waker();
        }
        sleepers.len() < before
    }

    fn wake_one(&self) {
        let woken = {
            let mut sleepers = self.sleepers();
            let at = sleepers.iter().position(|sleeper| sleeper.accepts_records);
            at.and_then(|at| sleepers.remove(at))
        };
        woken.iter().for_each(Sleeper::wake);
    }

    /// Removes from the list the members that are to be woken, and returns them. If there is a new notice, these are
    /// all members; otherwise, it is one member that can take a record, if there is one. If there is nothing to
    /// deliver, makes the logs wake a member later.
    fn take_sleepers_to_wake(&self, state: &mut MembershipState<M>) -> Vec<Sleeper> {
        let mut sleepers = self.sleepers();
        let notice_count = state.notice_count();
        if notice_count != state.woken_at_notice_count {
            state.woken_at_notice_count = notice_count;
            return sleepers.drain(..).collect();
        }
        let can_take = |sleeper: &Sleeper| sleeper.accepts_records && state.has_records_for(sleeper.member);
        let at = sleepers.iter().position(can_take).or_else(|| state.arm(&sleepers, self));
        at.and_then(|at| sleepers.remove(at)).into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, MembershipState<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleepers(&self) -> MutexGuard<'_, VecDeque<Sleeper>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a member that wants to sleep although events are available for it.
#[derive(Debug)]
pub(super) struct EventsAvailable;

impl Sleeper {
    fn wake(&self) {
        self.waiter.notify(self.token);
    }
}
