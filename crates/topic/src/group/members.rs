//! The members of a group, and the losses that each member must still receive.

use std::collections::BTreeMap;

use super::GroupError;
use super::lost::{LostRanges, LostRecords};
use crate::limits::LogLimits;

/// The id of a group's member. The group never uses an id again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl std::fmt::Display for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The members of a group. `T` is the part of the group's state that belongs to one member.
///
/// A loss is reported to each member that is present when the loss occurs. If one of these members leaves without
/// having received the report, and no other of them remains, the loss is reported to all remaining members, or to the
/// next member that joins. At least one member therefore receives a report of each loss. Several members may receive a
/// report of the same loss, even at different times.
#[derive(Debug)]
pub(super) struct Members<T> {
    by_id: BTreeMap<MemberId, Member<T>>,
    next_id: u64,
    /// Number of losses so far.
    losses: u64,
    /// The losses that must still be reported to the next member that joins.
    undelivered: LostRanges,
    members_max: u32,
    ranges_max: usize,
}

#[derive(Debug)]
struct Member<T> {
    part: T,
    /// The number of losses that the group had when the member joined: the number of the first loss at which the member
    /// is present.
    joined_at: u64,
    lost: LostRanges,
}

impl<T: Default> Members<T> {
    pub(super) fn new(limits: &LogLimits) -> Members<T> {
        Members {
            by_id: BTreeMap::new(),
            next_id: 1,
            losses: 0,
            undelivered: LostRanges::default(),
            members_max: limits.group_members_max,
            ranges_max: limits.group_lost_ranges_max as usize,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn join(&mut self) -> Result<MemberId, GroupError> {
        if self.by_id.len() >= self.members_max as usize {
            return Err(GroupError::Full { members_max: self.members_max });
        }
        let id = MemberId(self.next_id);
        self.next_id += 1;
        let lost = std::mem::take(&mut self.undelivered);
        self.by_id.insert(id, Member { part: T::default(), joined_at: self.losses, lost });
        Ok(id)
    }

    /// Removes a member. A loss that was not yet reported to this member is reported to the other members, unless one
    /// of them was present at the loss.
    pub(super) fn leave(&mut self, id: MemberId) -> Result<T, GroupError> {
        let Member { part, mut lost, .. } = self.by_id.remove(&id).ok_or(GroupError::NoMember(id))?;
        let first_joined = self.by_id.values().map(|member| member.joined_at).min();
        while let Some((number, lost)) = lost.pop() {
            if first_joined.is_none_or(|joined_at| joined_at > number) {
                self.add_to_all(number, lost);
            }
        }
        Ok(part)
    }

    pub(super) fn get(&self, id: MemberId) -> Result<&T, GroupError> {
        self.by_id.get(&id).map(|member| &member.part).ok_or(GroupError::NoMember(id))
    }

    pub(super) fn get_mut(&mut self, id: MemberId) -> Result<&mut T, GroupError> {
        self.by_id.get_mut(&id).map(|member| &mut member.part).ok_or(GroupError::NoMember(id))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.by_id.values().map(|member| &member.part)
    }

    /// Reports a loss to all members.
    pub(super) fn report(&mut self, lost: LostRecords) {
        self.add_to_all(self.losses, lost);
        self.losses += 1;
    }

    pub(super) fn take_lost(&mut self, id: MemberId) -> Option<LostRecords> {
        self.by_id.get_mut(&id)?.lost.pop().map(|(_, lost)| lost)
    }

    pub(super) fn has_lost(&self, id: MemberId) -> bool {
        self.by_id.get(&id).is_some_and(|member| !member.lost.is_empty())
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses
    }

    fn add_to_all(&mut self, number: u64, lost: LostRecords) {
        if self.by_id.is_empty() {
            self.undelivered.push(number, lost, self.ranges_max);
        }
        self.by_id.values_mut().for_each(|member| member.lost.push(number, lost, self.ranges_max));
    }
}
