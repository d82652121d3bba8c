//! Regions of others that this process stands by for.

use std::collections::BTreeMap;

use dunlin_space::{RecordError, RegionId, RegionState, Setup};

/// Copies that follow their owners' records.
#[derive(Debug)]
pub struct Standbys<const D: usize> {
    setup: Setup<D>,
    states: BTreeMap<RegionId, RegionState<D>>,
}

/// Why a copy cannot follow any more. It is given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StandbyError {
    /// It did not begin.
    #[error("nothing is known of region {} here", .0.0)]
    Unknown(RegionId),
    /// A record is not what follows.
    #[error("region {}: {why}", .region.0)]
    Record {
        /// Which.
        region: RegionId,
        /// What is wrong with it.
        why: RecordError,
    },
}

impl<const D: usize> Standbys<D> {
    /// Of regions that are set up so.
    pub fn new(setup: Setup<D>) -> Standbys<D> {
        Standbys { setup, states: BTreeMap::new() }
    }

    /// Starts from what the owner has; how many entries of hand-overs, and which tick, are known.
    pub fn start(&mut self, region: RegionId, whole: &[u8]) -> Result<(u64, u64), StandbyError> {
        let setup = Setup { region, ..self.setup.clone() };
        let state =
            RegionState::read_whole(&setup, whole).map_err(|why| StandbyError::Record { region, why })?;
        let known = (state.handover().written(), state.tick());
        self.states.insert(region, state);
        Ok(known)
    }

    /// Keeps a state of this process's own, which nobody follows.
    pub fn keep(&mut self, region: RegionId, state: RegionState<D>) {
        self.states.insert(region, state);
    }

    /// Takes in a record; what is known then.
    pub fn follow(&mut self, region: RegionId, record: &[u8]) -> Result<(u64, u64), StandbyError> {
        let state = self.states.get_mut(&region).ok_or(StandbyError::Unknown(region))?;
        if let Err(why) = state.follow(record) {
            self.states.remove(&region);
            return Err(StandbyError::Record { region, why });
        }
        Ok((state.handover().written(), state.tick()))
    }

    /// What is known of a region, which is not followed from here on.
    pub fn take(&mut self, region: RegionId) -> Option<RegionState<D>> {
        self.states.remove(&region)
    }

    /// What is known of a region.
    pub fn get(&self, region: RegionId) -> Option<&RegionState<D>> {
        self.states.get(&region)
    }

    /// The regions that are followed.
    pub fn regions(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.states.keys().copied()
    }
}
