//! The reducer of a region's topic: the owner writes the topic's records, and the standby builds the region's state
//! from them.
//!
//! A subscriber that falls behind receives a snapshot of the whole state, and not the changes since its last record.
//! Almost every entity moves in each tick, so these changes would not be shorter than a snapshot.

use std::cell::Cell;
use std::sync::Arc;

use dunlin_topic::{Frame, FrozenState, Reducer, ReducerError};

use crate::handover::{Handover, HandoverTiming, RegionId, StandbyMode};
use crate::limits::RegionLimits;
use crate::region::{RecordError, RegionState};
use crate::store::{EntityStore, Schema};
use crate::world::WorldBox;

/// The reducer of a region's topic: it keeps the region's state by applying the topic's records. `freeze` copies
/// nothing. If a frozen state is in use, the next record copies the state and changes the copy.
#[derive(Debug)]
pub struct RegionReducer<const D: usize> {
    schema: Schema,
    limits: RegionLimits,
    standby: StandbyMode,
    timing: HandoverTiming,
    state: Arc<RegionState<D>>,
    /// The checksum of the state, if a caller has requested the checksum since the last record. Records do not update
    /// the checksum, because every record changes most of the state.
    checksum: Cell<Option<u64>>,
    /// Memory of the handovers, bytes; `None` if no caller has requested this number since the last record. The number
    /// is computed only on request, because the computation takes time for each transfer.
    handover_bytes: Cell<Option<usize>>,
}

impl<const D: usize> RegionReducer<D> {
    /// Creates the state of an empty region.
    pub fn new(
        region: RegionId,
        world: WorldBox<D>,
        schema: Schema,
        limits: RegionLimits,
        standby: StandbyMode,
        timing: HandoverTiming,
    ) -> RegionReducer<D> {
        let handover = Handover::new(region, 0, standby, timing).with_limits(limits.handover);
        let state = Arc::new(RegionState::new(world, EntityStore::new(schema.clone(), limits), handover));
        let (checksum, handover_bytes) = Default::default();
        RegionReducer { schema, limits, standby, timing, state, checksum, handover_bytes }
    }

    /// The region's state after the last record.
    pub fn state(&self) -> &RegionState<D> {
        &self.state
    }

    /// Shares the state without copying it. If the shared state is still in use at the next record, the record changes
    /// a copy.
    pub fn share(&self) -> Arc<RegionState<D>> {
        Arc::clone(&self.state)
    }
}

impl<const D: usize> Reducer for RegionReducer<D> {
    fn check(&self, frames: &mut dyn Iterator<Item = Frame<'_>>) -> Result<(), ReducerError> {
        let mut trial = self.state.trial();
        for frame in frames {
            trial.follow(frame.payload()).map_err(refused)?;
        }
        Ok(())
    }

    fn apply(&mut self, _: u64, frame: &Frame<'_>) -> Result<(), ReducerError> {
        self.checksum.set(None);
        self.handover_bytes.set(None);
        Arc::make_mut(&mut self.state).follow(frame.payload()).map_err(refused)
    }

    fn freeze(&mut self) -> Arc<dyn FrozenState> {
        Arc::new(FrozenRegion(Arc::clone(&self.state)))
    }

    fn restore(&mut self, _: u64, snapshot: &[u8]) -> Result<(), ReducerError> {
        let (world, region) = (*self.state.world(), self.state.handover().region());
        let empty =
            || RegionReducer::new(region, world, self.schema.clone(), self.limits, self.standby, self.timing);
        let read = self.state.read(snapshot);
        self.checksum.set(None);
        self.handover_bytes.set(None);
        match read {
            Ok(state) => self.state = Arc::new(state),
            Err(error) => {
                self.state = empty().state;
                return Err(refused(error));
            }
        }
        Ok(())
    }

    fn checksum(&self) -> u64 {
        if let Some(checksum) = self.checksum.get() {
            return checksum;
        }
        let (store, mut scratch) = (self.state.store(), Vec::new());
        let sum =
            (0..store.len()).fold(0_u64, |sum, row| sum.wrapping_add(store.state_hash(row, &mut scratch)));
        self.checksum.set(Some(sum));
        sum
    }

    fn changes_since(&self, _: u64, _: &mut Vec<u8>) -> bool {
        false
    }

    fn snapshot_bytes(&self) -> usize {
        self.state.store().snapshot_bytes() + 64
    }

    fn bytes(&self) -> u64 {
        let handover_bytes = self.handover_bytes.get().unwrap_or_else(|| self.state.handover().bytes());
        self.handover_bytes.set(Some(handover_bytes));
        (self.state.store().bytes() + handover_bytes) as u64
    }

    fn entries(&self) -> u64 {
        self.state.store().len() as u64
    }
}

fn refused(error: RecordError) -> ReducerError {
    ReducerError(error.to_string())
}

#[derive(Debug)]
struct FrozenRegion<const D: usize>(Arc<RegionState<D>>);

impl<const D: usize> FrozenState for FrozenRegion<D> {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}
