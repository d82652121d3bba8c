//! Copies of other processes' regions, for which this process is the standby.

use std::collections::BTreeMap;

use dunlin_space::{RecordError, RegionId, RegionSetup, RegionState};

/// Copies of regions that other processes own, for which this process is the standby.
#[derive(Debug)]
pub struct Standbys<const D: usize> {
    setup: RegionSetup<D>,
    states: BTreeMap<RegionId, RegionState<D>>,
}

/// The reason why a standby dropped its copy of a region.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StandbyError {
    /// There is no copy of this region.
    #[error("this process has no copy of region {}", .0.0)]
    Unknown(RegionId),
    /// A record does not follow the previous one.
    #[error("cannot apply a record of region {}: {why}", .region.0)]
    Record {
        /// The region.
        region: RegionId,
        /// The error.
        why: RecordError,
    },
}

impl<const D: usize> Standbys<D> {
    /// Creates a set without copies. `setup` applies to every region, except for the region number that it contains.
    pub fn new(setup: RegionSetup<D>) -> Standbys<D> {
        Standbys { setup, states: BTreeMap::new() }
    }

    /// Starts a copy from a complete state. Returns the number of handover entries and the tick of that state.
    pub fn start(&mut self, region: RegionId, whole: &[u8]) -> Result<(u64, u64), StandbyError> {
        let setup = RegionSetup { region, ..self.setup.clone() };
        let state =
            RegionState::read_whole(&setup, whole).map_err(|why| StandbyError::Record { region, why })?;
        let known = (state.handover().written(), state.tick());
        self.states.insert(region, state);
        Ok(known)
    }

    /// Stores the last state of a region that this process owned. No further records are applied to this copy.
    pub fn keep(&mut self, region: RegionId, state: RegionState<D>) {
        self.states.insert(region, state);
    }

    /// Applies a record. Returns the handover entries and the tick that the copy includes.
    pub fn follow(&mut self, region: RegionId, record: &[u8]) -> Result<(u64, u64), StandbyError> {
        let state = self.states.get_mut(&region).ok_or(StandbyError::Unknown(region))?;
        if let Err(why) = state.follow(record) {
            self.states.remove(&region);
            return Err(StandbyError::Record { region, why });
        }
        Ok((state.handover().written(), state.tick()))
    }

    /// Removes and returns a copy.
    pub fn take(&mut self, region: RegionId) -> Option<RegionState<D>> {
        self.states.remove(&region)
    }

    /// The copy of a region.
    pub fn get(&self, region: RegionId) -> Option<&RegionState<D>> {
        self.states.get(&region)
    }

    /// The regions that have copies.
    pub fn regions(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.states.keys().copied()
    }
}
