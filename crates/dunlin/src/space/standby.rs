//! Keeps copies of regions that other processes own. This process is the standby for these regions.

use std::collections::BTreeMap;

use dunlin_space::{RecordError, RegionId, RegionSetup, RegionState};

/// How many changes of a region a standby's copy contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StandbyProgress {
    /// The number of handover entries.
    pub entries: u64,
    /// The last tick.
    pub tick: u64,
    /// The number of records that the owner has written in its epoch. Records also contain the changes between two
    /// ticks.
    pub records: u64,
}

impl StandbyProgress {
    /// The changes that both copies contain.
    pub fn common(self, other: StandbyProgress) -> StandbyProgress {
        StandbyProgress {
            entries: self.entries.min(other.entries),
            tick: self.tick.min(other.tick),
            records: self.records.min(other.records),
        }
    }

    /// Whether a copy with this progress contains all changes of a copy with the progress `other`.
    pub fn includes(self, other: StandbyProgress) -> bool {
        self.common(other) == other
    }
}

/// The copies of those regions for which this process is the standby.
#[derive(Debug)]
pub struct Standbys<const D: usize> {
    setup: RegionSetup<D>,
    states: BTreeMap<RegionId, RegionState<D>>,
}

/// The reason why a state or a record could not be applied to a copy. If there was a copy, it has been dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StandbyError {
    /// This process has no copy of this region.
    #[error("this process has no copy of region {}", .0.0)]
    Unknown(RegionId),
    /// The bytes are invalid, or the record does not follow the previous one.
    #[error("cannot apply a record of region {}: {why}", .region.0)]
    Record {
        /// The region of the copy.
        region: RegionId,
        /// The reason why the bytes were refused.
        why: RecordError,
    },
}

impl<const D: usize> Standbys<D> {
    /// Creates a set without copies. Every region is set up with `setup`, except that each region has its own number.
    pub fn new(setup: RegionSetup<D>) -> Standbys<D> {
        Standbys { setup, states: BTreeMap::new() }
    }

    /// Starts a copy of a region from the region's complete state. Returns the number of handover entries in this
    /// state, and the state's tick.
    pub fn start(&mut self, region: RegionId, whole: &[u8]) -> Result<(u64, u64), StandbyError> {
        let setup = RegionSetup { region, ..self.setup.clone() };
        let state =
            RegionState::read_whole(&setup, whole).map_err(|why| StandbyError::Record { region, why })?;
        let known = (state.handover().written(), state.tick());
        self.states.insert(region, state);
        Ok(known)
    }

    /// Keeps the last state of a region that this process owned until now. No records may be applied to this copy.
    pub fn keep(&mut self, region: RegionId, state: RegionState<D>) {
        self.states.insert(region, state);
    }

    /// Applies a record with changes to a region's copy. Returns the number of handover entries in the copy, and the
    /// copy's tick.
    pub fn follow(&mut self, region: RegionId, record: &[u8]) -> Result<(u64, u64), StandbyError> {
        let state = self.states.get_mut(&region).ok_or(StandbyError::Unknown(region))?;
        if let Err(why) = state.follow(record) {
            self.states.remove(&region);
            return Err(StandbyError::Record { region, why });
        }
        Ok((state.handover().written(), state.tick()))
    }

    /// Removes and returns the copy of a region.
    pub fn take(&mut self, region: RegionId) -> Option<RegionState<D>> {
        self.states.remove(&region)
    }

    /// The copy of a region.
    pub fn get(&self, region: RegionId) -> Option<&RegionState<D>> {
        self.states.get(&region)
    }

    /// The regions of which there is a copy.
    pub fn regions(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.states.keys().copied()
    }
}
