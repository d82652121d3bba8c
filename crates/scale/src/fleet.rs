//! The fleet of a scaler: its worker instances and their phases.

use std::collections::BTreeMap;

use crate::provider::{InstanceId, InstanceMarket};

/// The phase of a worker instance between its start and its end, such as ready or draining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstancePhase {
    /// The instance is starting, and will run tasks.
    Starting,
    /// The instance is starting for the warm pool, or is returning to the warm pool.
    Preparing,
    /// The instance waits in the warm pool.
    Warm,
    /// The instance has left the warm pool and will soon run tasks.
    Waking,
    /// The instance runs tasks.
    Ready,
    /// The instance finishes its tasks and takes no new ones.
    Draining,
    /// The instance is ending.
    Stopping,
}

/// A worker instance in a scaler's fleet: its phase, and the start of the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetMember {
    /// The instance's phase.
    pub phase: InstancePhase,
    /// Whether the instance is on-demand or spot.
    pub market: InstanceMarket,
    /// The time at which this phase began, ms.
    pub since_ms: u64,
    /// The number of the decision that last requested the instance, counted from 0; `None` if the warm pool requested
    /// it.
    pub decision: Option<u64>,
    /// Whether the market interrupted the instance, which then does not return to the warm pool.
    pub is_lost: bool,
}

/// The worker instances that a scaler has started and that have not ended yet.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    members: BTreeMap<InstanceId, FleetMember>,
    counts: [u32; 7],
    last: InstanceId,
}

impl Fleet {
    /// Adds an instance and returns its number.
    pub(crate) fn add(&mut self, member: FleetMember) -> InstanceId {
        self.last += 1;
        self.counts[member.phase as usize] += 1;
        self.members.insert(self.last, member);
        self.last
    }

    pub(crate) fn remove(&mut self, instance: InstanceId) -> Option<FleetMember> {
        let member = self.members.remove(&instance)?;
        self.counts[member.phase as usize] -= 1;
        Some(member)
    }

    pub(crate) fn set(
        &mut self,
        instance: InstanceId,
        phase: InstancePhase,
        now_ms: u64,
    ) -> Option<&mut FleetMember> {
        let member = self.members.get_mut(&instance)?;
        self.counts[member.phase as usize] -= 1;
        self.counts[phase as usize] += 1;
        (member.phase, member.since_ms) = (phase, now_ms);
        Some(member)
    }

    /// Returns an instance.
    pub fn get(&self, instance: InstanceId) -> Option<&FleetMember> {
        self.members.get(&instance)
    }

    /// Iterates over all instances, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (InstanceId, &FleetMember)> {
        self.members.iter().map(|(instance, member)| (*instance, member))
    }

    /// Number of instances in a phase.
    pub fn count(&self, phase: InstancePhase) -> u32 {
        self.counts[phase as usize]
    }

    /// Returns the number of instances that run tasks or will soon do so.
    pub fn serving(&self) -> u32 {
        self.count(InstancePhase::Ready)
            + self.count(InstancePhase::Starting)
            + self.count(InstancePhase::Waking)
    }
}
