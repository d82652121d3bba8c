//! The instances a scaler has, and how far each is.

use std::collections::BTreeMap;

use crate::provider::{Instance, Market};

/// How far an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Being started, to work.
    Starting,
    /// Being started, or put back, for the warm pool.
    Preparing,
    /// In the warm pool.
    Warm,
    /// On its way from the warm pool to work.
    Waking,
    /// Works.
    Ready,
    /// Takes nothing new.
    Draining,
    /// Is told to end.
    Stopping,
}

/// An instance as the scaler knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// How far it is.
    pub phase: Phase,
    /// How it is paid for.
    pub market: Market,
    /// Since when it is in this phase.
    pub since_ms: u64,
    /// By which decision, counted from 0, it was last sent for; none for the warm pool.
    pub decision: Option<u64>,
    /// It is to go for good: it was interrupted.
    pub is_lost: bool,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    members: BTreeMap<Instance, Member>,
    counts: [u32; 7],
    last: Instance,
}

impl Fleet {
    /// One more; its number.
    pub(crate) fn add(&mut self, member: Member) -> Instance {
        self.last += 1;
        self.counts[member.phase as usize] += 1;
        self.members.insert(self.last, member);
        self.last
    }

    pub(crate) fn remove(&mut self, instance: Instance) -> Option<Member> {
        let member = self.members.remove(&instance)?;
        self.counts[member.phase as usize] -= 1;
        Some(member)
    }

    /// It is in another phase now.
    pub(crate) fn set(&mut self, instance: Instance, phase: Phase, now_ms: u64) -> Option<&mut Member> {
        let member = self.members.get_mut(&instance)?;
        self.counts[member.phase as usize] -= 1;
        self.counts[phase as usize] += 1;
        (member.phase, member.since_ms) = (phase, now_ms);
        Some(member)
    }

    /// One of them.
    pub fn get(&self, instance: Instance) -> Option<&Member> {
        self.members.get(&instance)
    }

    /// All, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (Instance, &Member)> {
        self.members.iter().map(|(instance, member)| (*instance, member))
    }

    /// How many are in a phase.
    pub fn count(&self, phase: Phase) -> u32 {
        self.counts[phase as usize]
    }

    /// Those that work or are about to.
    pub fn serving(&self) -> u32 {
        self.count(Phase::Ready) + self.count(Phase::Starting) + self.count(Phase::Waking)
    }
}
