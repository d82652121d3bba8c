//! Keeps the fleet of a scaler: its worker instances, each of which is in a phase such as starting, ready or draining.

use std::collections::BTreeMap;

use crate::provider::{InstanceId, InstanceMarket};

/// The phase of a worker instance, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstancePhase {
    /// The instance is starting. When it is ready, it runs tasks.
    Starting,
    /// The instance is starting for the warm pool, or is being prepared to return to it.
    Preparing,
    /// The instance is prepared, and waits in the warm pool.
    Warm,
    /// The instance has left the warm pool, and will run tasks soon.
    Waking,
    /// The instance runs tasks.
    Ready,
    /// The instance finishes its tasks, and takes no new ones.
    Draining,
    /// The instance is ending.
    Stopping,
}

/// A worker instance of a fleet, with its phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetMember {
    /// The phase of the instance.
    pub phase: InstancePhase,
    /// Whether the instance is an on-demand or a spot instance.
    pub market: InstanceMarket,
    /// When the present phase began, in ms.
    pub since_ms: u64,
    /// The decision for which the instance was started, or last taken from the warm pool: its number, counted from 0.
    /// `None` if the instance was started for another reason, for example to fill the warm pool.
    pub decision: Option<u64>,
    /// Whether the provider has announced that it will interrupt the instance. Such an instance does not return to the
    /// warm pool.
    pub is_lost: bool,
}

/// All worker instances that a scaler has started and that have not ended.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    members: BTreeMap<InstanceId, FleetMember>,
    counts: [u32; 7],
    last: InstanceId,
}

impl Fleet {
    /// Adds an instance, and returns its id.
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

    /// Returns an instance; `None` if there is no instance with this id.
    pub fn get(&self, instance: InstanceId) -> Option<&FleetMember> {
        self.members.get(&instance)
    }

    /// Iterates over all instances, from the oldest to the newest.
    pub fn iter(&self) -> impl Iterator<Item = (InstanceId, &FleetMember)> {
        self.members.iter().map(|(instance, member)| (*instance, member))
    }

    /// Returns the number of instances in a phase.
    pub fn count(&self, phase: InstancePhase) -> u32 {
        self.counts[phase as usize]
    }

    /// Returns the number of instances that run tasks, or that will do so soon.
    pub fn serving(&self) -> u32 {
        self.count(InstancePhase::Ready)
            + self.count(InstancePhase::Starting)
            + self.count(InstancePhase::Waking)
    }
}
