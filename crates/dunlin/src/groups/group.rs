//! One group: a state machine for each partition of its topic, and the members that sleep.
//!
//! Invariants:
//! - Everything that is done to the group goes through [`Group::with`], which first ends what is over by
//!   now, and afterwards wakes who can use what has become of it.
//! - Whoever sleeps was given everything it could have had when it went to sleep, under the same lock.
//! - A publish wakes one member; it takes, and wakes the next if there is more.
//! - Locks are taken in this order: `state`, `sleepers`. A waker that a log calls takes `sleepers` alone: it may
//!   run on a thread that holds another group's `state`.
//! - Between two calls the group pins no segment of a log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

use dunlin_topic::{
    Consumption, Cursor, DeadLetter, Departure, Fill, MemberId, Notice, SubscribeError, SubscribeOptions,
    Topic, Waiter,
};

use super::dead_letters::{self, Sent};
use super::error::JoinError;
use super::feed::Feed;
use super::machine::Machine;
use super::{GroupInfo, GroupKind};
use crate::clock::now_ns;
use crate::node::Node;

/// A group of one topic.
#[derive(Debug)]
pub(crate) struct Group<M> {
    pub(super) topic: Arc<Topic>,
    pub(super) name: String,
    state: Mutex<State<M>>,
    sleepers: Mutex<VecDeque<Sleeper>>,
    /// What the logs notify, when members sleep.
    logs: Arc<Waiter>,
    alarm: Waker,
    /// The subject of its dead letters; without one they are dropped.
    dead_letters: Option<String>,
}

/// What the lock guards.
#[derive(Debug)]
pub(super) struct State<M> {
    pub(super) parts: Vec<Part<M>>,
    pub(super) members: BTreeMap<MemberId, String>,
    /// When the group was made. Tokens count from here, so that one of an earlier group of this name, be it of a node
    /// before a restart, settles nothing.
    pub(super) made_ns: u64,
    /// When the last member left.
    pub(super) idle_since_ns: u64,
    /// The partition whose turn it is.
    turn: usize,
    /// How much of what all are to be told, they were woken for.
    woken_for: u64,
}

/// One partition.
#[derive(Debug)]
pub(super) struct Part<M> {
    pub(super) cursor: Cursor,
    pub(super) machine: M,
    /// The log was deleted, and read to its end.
    pub(super) ended: bool,
    /// Taken from the state machine, and refused for now by the topic that dead letters go to.
    pending: Option<DeadLetter>,
}

/// A member that waits for something.
#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) member: MemberId,
    pub(super) waiter: Arc<Waiter>,
    pub(super) token: u32,
    /// Whether it wants records, not only to be told what was lost.
    pub(super) wants: bool,
}

struct Alarm<M>(Weak<Group<M>>);

impl<M: Machine> Wake for Alarm<M> {
    fn wake(self: Arc<Self>) {
        if let Some(group) = self.0.upgrade() {
            group.wake_one();
        }
    }
}

impl<M: Machine> Group<M> {
    pub(super) fn new(
        topic: Arc<Topic>,
        name: String,
        options: &SubscribeOptions,
        dead_letters: Option<String>,
        machine: impl Fn(u64) -> M,
    ) -> Result<(Arc<Group<M>>, Vec<Notice>), JoinError> {
        let mut notices = Vec::new();
        let part =
            |log| Part::new(Cursor::new(log, options, None, Consumption::Told)?, &machine, &mut notices);
        let parts = topic.logs().iter().cloned().map(part).collect::<Result<_, SubscribeError>>()?;
        let members = BTreeMap::new();
        let state = State { parts, members, made_ns: now_ns(), idle_since_ns: 0, turn: 0, woken_for: 0 };
        let group = Arc::new_cyclic(|group| Group {
            topic,
            name,
            state: Mutex::new(state),
            sleepers: Mutex::default(),
            logs: Waiter::new(),
            alarm: Waker::from(Arc::new(Alarm(Weak::clone(group)))),
            dead_letters,
        });
        Ok((group, notices))
    }

    /// Does something to the group at the time `op` is given, and wakes whom that concerns.
    pub(super) fn with<R>(&self, node: &Node, op: impl FnOnce(&mut State<M>, u64) -> R) -> R {
        let now_ns = now_ns();
        let (outcome, woken) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            self.logs.take_ready(|part| state.parts[part as usize].cursor.woken());
            state.parts.iter_mut().for_each(|part| part.machine.tick(now_ns));
            let outcome = op(&mut state, now_ns);
            state.send_dead_letters(node, self);
            state.parts.iter_mut().for_each(Part::rest);
            (outcome, self.whom_to_wake(&mut state))
        };
        woken.iter().for_each(Sleeper::wake);
        outcome
    }

    pub(super) fn join(&self, node: &Node, member_name: &str) -> Result<MemberId, JoinError> {
        self.with(node, |state, _| {
            let mut member = MemberId(0);
            // All partitions have the same members, so either all accept one more or none does.
            for part in &mut state.parts {
                member = part.machine.join()?;
            }
            state.members.insert(member, member_name.to_owned());
            Ok(member)
        })
    }

    pub(super) fn leave(&self, node: &Node, member: MemberId, departure: Departure) {
        self.forget(member);
        self.with(node, |state, now_ns| {
            state.parts.iter_mut().for_each(|part| part.machine.leave(member, departure, now_ns));
            state.members.remove(&member);
            state.idle_since_ns = now_ns;
        });
    }

    /// Housekeeping: what is given up by a log that nobody claims from is lost now.
    pub(super) fn tick(&self, node: &Node) {
        self.with(node, |state, _| {
            for part in &mut state.parts {
                let oldest_seq = part.cursor.log().info().oldest_seq;
                part.machine.give_up_before(oldest_seq);
            }
        });
    }

    /// Since when it has had no members; `None` while it has some.
    pub(super) fn idle_since_ns(&self, node: &Node) -> Option<u64> {
        self.with(node, |state, _| state.members.is_empty().then_some(state.idle_since_ns))
    }

    pub(super) fn info(&self, node: &Node, kind: GroupKind) -> GroupInfo {
        self.with(node, |state, _| GroupInfo {
            name: self.name.clone(),
            kind,
            members: state.members.values().cloned().collect(),
            waiting: state.parts.iter().map(Part::waiting).sum(),
            claimed: state.parts.iter().map(|part| u64::from(part.machine.claims())).sum(),
        })
    }

    /// Lets the member sleep until something may be there for it; when it should look again at the latest. `ends_told` says
    /// of which partitions' ends it knows.
    pub(super) fn sleep(
        &self,
        node: &Node,
        sleeper: Sleeper,
        ends_told: &[bool],
    ) -> Result<Option<u64>, Awake> {
        self.with(node, |state, _| {
            if state.has_news_for(&sleeper, ends_told) {
                return Err(Awake);
            }
            let mut sleepers = self.sleepers();
            match sleepers.iter_mut().find(|other| other.member == sleeper.member) {
                Some(same) => *same = sleeper,
                None => sleepers.push_back(sleeper),
            }
            Ok(state.next_tick_ns())
        })
    }

    /// The member waits no more. Should it have been woken meanwhile, another is woken in its place.
    pub(super) fn give_up_waiting(&self, node: &Node, member: MemberId) {
        if !self.forget(member) || self.logs.is_ready() {
            self.with(node, |_, _| ());
        }
    }

    /// Takes the member off the list of sleepers; `false` when it is not on it.
    fn forget(&self, member: MemberId) -> bool {
        let mut sleepers = self.sleepers();
        let before = sleepers.len();
        sleepers.retain(|sleeper| sleeper.member != member);
        if !sleepers.iter().any(|sleeper| sleeper.wants) {
            // A log that is armed finds nobody here and goes on to its next reader.
            self.logs.clear_waker();
        }
        sleepers.len() < before
    }

    fn wake_one(&self) {
        let woken = {
            let mut sleepers = self.sleepers();
            let at = sleepers.iter().position(|sleeper| sleeper.wants);
            at.and_then(|at| sleepers.remove(at))
        };
        woken.iter().for_each(Sleeper::wake);
    }

    /// All, when there is something to be told to all; else one that can have what is there. When there is nothing,
    /// the logs are to wake the group as long as anybody sleeps who could have more.
    fn whom_to_wake(&self, state: &mut State<M>) -> Vec<Sleeper> {
        let mut sleepers = self.sleepers();
        let to_tell_all = state.told_to_all();
        if to_tell_all != state.woken_for {
            state.woken_for = to_tell_all;
            return sleepers.drain(..).collect();
        }
        let can_have = |sleeper: &Sleeper| sleeper.wants && state.has_records_for(sleeper.member);
        let at = sleepers.iter().position(can_have).or_else(|| state.arm(&sleepers, self));
        at.and_then(|at| sleepers.remove(at)).into_iter().collect()
    }

    fn sleepers(&self) -> MutexGuard<'_, VecDeque<Sleeper>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member that wants to sleep has something to look at.
#[derive(Debug)]
pub(super) struct Awake;

impl Sleeper {
    fn wake(&self) {
        self.waiter.notify(self.token);
    }
}

impl<M: Machine> State<M> {
    /// Looks at the partitions in turn until one gives something; each gets its turn first.
    pub(super) fn find<R>(&mut self, mut look: impl FnMut(usize, &mut Part<M>) -> Option<R>) -> Option<R> {
        let parts = self.parts.len();
        let mut turns = (0..parts).map(|turn| (self.turn + turn) % parts);
        let (at, found) = turns.find_map(|at| Some((at, look(at, &mut self.parts[at])?)))?;
        self.turn = (at + 1) % parts;
        Some(found)
    }

    fn has_records_for(&self, member: MemberId) -> bool {
        self.parts.iter().any(|part| part.has_more() && part.machine.has_room(member))
    }

    fn has_news_for(&self, sleeper: &Sleeper, ends_told: &[bool]) -> bool {
        let has_news = |(part, told): (&Part<M>, &bool)| {
            part.machine.has_lost(sleeper.member) || part.is_over() && !told
        };
        self.parts.iter().zip(ends_told).any(has_news)
            || sleeper.wants && self.has_records_for(sleeper.member)
    }

    /// Has the logs wake the group that somebody waits for; else, which sleeper can have what has just come.
    fn arm(&mut self, sleepers: &VecDeque<Sleeper>, group: &Group<M>) -> Option<usize> {
        let mut armed = false;
        for (token, part) in self.parts.iter_mut().enumerate() {
            if part.ended || !part.machine.may_look() {
                continue;
            }
            let has_room = |sleeper: &Sleeper| sleeper.wants && part.machine.has_room(sleeper.member);
            let Some(at) = sleepers.iter().position(has_room) else { continue };
            if !part.cursor.arm(&group.logs, token as u32) {
                return Some(at);
            }
            armed = true;
        }
        if armed && !group.logs.set_waker(&group.alarm) {
            return sleepers.iter().position(|sleeper| sleeper.wants);
        }
        None
    }

    fn next_tick_ns(&self) -> Option<u64> {
        self.parts.iter().filter_map(|part| part.machine.next_tick_ns()).min()
    }

    /// Grows with everything that all members are to be told.
    fn told_to_all(&self) -> u64 {
        self.parts.iter().map(|part| part.machine.losses() + u64::from(part.is_over())).sum()
    }

    fn send_dead_letters(&mut self, node: &Node, group: &Group<M>) {
        for part in &mut self.parts {
            while let Some(letter) = part.pending.take().or_else(|| part.machine.take_dead_letter()) {
                let Some(subject) = &group.dead_letters else { continue };
                match dead_letters::send(node, subject, &group.name, part.cursor.log(), letter) {
                    Sent::Done => {}
                    Sent::Never => part.machine.lose_dead_letter(letter),
                    Sent::NotYet => {
                        part.pending = Some(letter);
                        break;
                    }
                }
            }
        }
    }
}

impl<M: Machine> Part<M> {
    fn new(
        mut cursor: Cursor,
        machine: impl Fn(u64) -> M,
        notices: &mut Vec<Notice>,
    ) -> Result<Part<M>, SubscribeError> {
        // A start in an epoch that is over goes on in the one that is, which the first member is told.
        if cursor.next().epoch != cursor.log().last().epoch
            && let Fill::Notice(changed) = cursor.fill()
        {
            notices.push(changed);
        }
        let machine = machine(cursor.next().seq - 1);
        Ok(Part { cursor, machine, ended: false, pending: None })
    }

    /// The log, as the group is fed with it, and the group.
    pub(super) fn feed(&mut self) -> (Feed<'_>, &mut M) {
        (Feed::new(&mut self.cursor, &mut self.ended), &mut self.machine)
    }

    fn has_more(&self) -> bool {
        self.machine.has_ready() || self.machine.may_look() && !self.ended && self.cursor.may_have_more()
    }

    /// Nothing will ever come from it.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.machine.is_settled()
    }

    fn waiting(&self) -> u64 {
        let last = self.cursor.log().last().seq;
        last.saturating_sub(self.machine.position()).saturating_sub(self.machine.claims().into())
    }

    fn rest(&mut self) {
        self.cursor.release();
        if self.cursor.is_registered() {
            self.cursor.consume(self.machine.position());
        }
    }
}
