//! The state of a group that one lock protects: the partitions and the members.

use std::collections::{BTreeMap, VecDeque};

use dunlin_topic::{MemberId, SkipBudget, SubscribeError};

use super::dead_letters::{LetterSender, LetterSource};
use super::group::{Group, Sleeper};
use super::machine::GroupMachine;
use super::partition::GroupPartition;
use crate::node::Node;

/// The state of a group that the group's lock protects.
#[derive(Debug)]
pub(super) struct MembershipState<M> {
    pub(super) parts: Vec<GroupPartition<M>>,
    pub(super) members: BTreeMap<MemberId, String>,
    /// The time at which the group was created, ns since the Unix epoch. Claim tokens are numbered from this time. A
    /// token from an earlier group with the same name therefore settles no claim of this group, even after a restart.
    pub(super) created_ns: u64,
    /// Time at which the last member left, by the monotonic clock.
    pub(super) idle_since_ns: u64,
    /// Whether publishers of a reliable topic wait for the group.
    registered: bool,
    /// The index of the partition from which the next record is taken first.
    next_part: usize,
    /// How many expired records the present operation may still skip, in all partitions together.
    pub(super) skips: SkipBudget,
    /// The value that [`MembershipState::notice_count`] had when the members were last woken for a notice.
    pub(super) woken_at_notice_count: u64,
}

impl<M: GroupMachine> MembershipState<M> {
    /// Creates the state. `created_ns` is the time of the wall clock, and `now_ns` that of the monotonic clock.
    pub(super) fn new(parts: Vec<GroupPartition<M>>, created_ns: u64, now_ns: u64) -> MembershipState<M> {
        let registered = parts.iter().any(|part| part.cursor.is_registered());
        let members = BTreeMap::new();
        MembershipState {
            parts,
            members,
            created_ns,
            idle_since_ns: now_ns,
            registered,
            next_part: 0,
            skips: SkipBudget::default(),
            woken_at_notice_count: 0,
        }
    }

    /// Calls `visit` for one partition after another, beginning with `next_part`, until `visit` returns a value. All
    /// partitions share one budget for skipping expired records. A partition with many expired records can therefore
    /// spend the whole budget.
    pub(super) fn find<R>(
        &mut self,
        mut visit: impl FnMut(usize, &mut GroupPartition<M>, &mut SkipBudget) -> Option<R>,
    ) -> Option<R> {
        let parts = self.parts.len();
        let mut order = (0..parts).map(|offset| (self.next_part + offset) % parts);
        let (at, found) =
            order.find_map(|at| Some((at, visit(at, &mut self.parts[at], &mut self.skips)?)))?;
        self.next_part = (at + 1) % parts;
        Some(found)
    }

    pub(super) fn has_records_for(&self, member: MemberId) -> bool {
        self.parts.iter().any(|part| part.has_more() && part.machine.has_room(member))
    }

    pub(super) fn has_events_for(&self, sleeper: &Sleeper, reported_ends: &[bool]) -> bool {
        let has_events = |(part, is_reported): (&GroupPartition<M>, &bool)| {
            part.machine.has_lost(sleeper.member) || part.is_over() && !is_reported
        };
        self.parts.iter().zip(reported_ends).any(has_events)
            || sleeper.accepts_records && self.has_records_for(sleeper.member)
    }

    /// Makes the logs wake members when records arrive. If a record is already available for a sleeping member, returns
    /// this member's index in `sleepers` instead.
    pub(super) fn arm(&mut self, sleepers: &VecDeque<Sleeper>, group: &Group<M>) -> Option<usize> {
        let mut armed = false;
        for (token, part) in self.parts.iter_mut().enumerate() {
            if !part.can_read() || part.has_only_foreign_records() {
                continue;
            }
            let has_room =
                |sleeper: &Sleeper| sleeper.accepts_records && part.machine.has_room(sleeper.member);
            let Some(at) = sleepers.iter().position(has_room) else { continue };
            if !part.cursor.arm(&group.logs, token as u32) {
                return Some(at);
            }
            armed = true;
        }
        if armed && !group.logs.set_waker(&group.alarm) {
            return sleepers.iter().position(|sleeper| sleeper.accepts_records);
        }
        None
    }

    pub(super) fn next_tick_ns(&self) -> Option<u64> {
        let of_parts = self.parts.iter().filter_map(GroupPartition::next_tick_ns).min();
        of_parts.into_iter().chain(self.registered_until_ns()).min()
    }

    /// The time until which publishers of a reliable topic wait for the group although it has no members. `None` if the
    /// group has members, if publishers do not wait for the group, or if they wait without a limit. The wait is half as
    /// long as the wait for other subscribers. A publisher that began to wait when the last member left can therefore
    /// continue before its own time limit.
    fn registered_until_ns(&self) -> Option<u64> {
        let is_registered = || self.parts.iter().any(|part| part.cursor.is_registered());
        if M::WAITED_FOR_WITHOUT_MEMBERS || !self.members.is_empty() || !is_registered() {
            return None;
        }
        let reliable = self.parts[0].cursor.log().config().reliable.as_ref()?;
        let wait_ns = (reliable.wait_max / 2).as_nanos().min(u64::MAX.into()) as u64;
        Some(self.idle_since_ns.saturating_add(wait_ns))
    }

    pub(super) fn release_expired_registration(&mut self, now_ns: u64) {
        if self.registered_until_ns().is_some_and(|until_ns| until_ns <= now_ns) {
            self.parts.iter_mut().for_each(|part| part.cursor.unregister());
        }
    }

    /// After a member has joined, registers the group with the logs again, so that publishers wait for the group.
    pub(super) fn register(&mut self, name: &str) -> Result<(), SubscribeError> {
        let missing = |part: &&mut GroupPartition<M>| self.registered && !part.cursor.is_registered();
        let name = subscriber_name(name);
        self.parts.iter_mut().filter(missing).try_for_each(|part| part.cursor.register(&name))
    }

    /// A number that grows with each notice for all members. Such notices report a gap, the end of a log, or the last
    /// record before the topic's move to another owner.
    pub(super) fn notice_count(&self) -> u64 {
        let ends =
            |part: &GroupPartition<M>| u64::from(part.is_over()) + u64::from(part.is_past_last_epoch());
        self.parts.iter().map(|part| part.machine.losses() + ends(part)).sum()
    }

    /// Whether, after a move of the topic, the members have received all records that remain at this node. Also `true`
    /// if the group has no members.
    pub(super) fn is_drained(&self) -> bool {
        self.members.is_empty() || self.parts.iter().all(|part| part.ended || part.is_past_last_epoch())
    }

    /// Takes the outcomes of sent dead letters, and sends waiting ones. If the group has no destination for dead
    /// letters, drops them.
    pub(super) fn send_dead_letters(&mut self, node: &Node, group: &Group<M>) {
        let Some(target) = &group.dead_letters else {
            for part in &mut self.parts {
                while part.machine.take_dead_letter().is_some() {}
            }
            return;
        };
        if target.is_due() || self.has_sent_letters() {
            target.reset_alarm();
        }
        let sender = LetterSender { node, topic: group.topic.name(), group: &group.name, target };
        for part in &mut self.parts {
            let records = LetterSource { log: part.cursor.log(), newest_epoch: part.epochs.newest() };
            part.letters.advance(&sender, records, &mut part.machine);
        }
        if self.has_sent_letters() {
            target.arm();
        }
    }

    fn has_sent_letters(&self) -> bool {
        self.parts.iter().any(|part| part.letters.has_sent())
    }
}

/// The name of the group in lists of subscribers. Operators and publishers that wait for the group see this name.
pub(super) fn subscriber_name(group: &str) -> String {
    format!("group {group}")
}
