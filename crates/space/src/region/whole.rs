//! Whole states of a region, as a snapshot or as a record that replaces the state.
//!
//! ```text
//!  snapshot:  version u8, tick u64, handovers, entities by row
//! ```

use super::state::{RecordError, RecordSection, RegionState};
use crate::handover::{Handover, HandoverTiming, StandbyMode};
use crate::layout::{Fields, VERSION, put_u64};
use crate::limits::RegionLimits;
use crate::region::RegionSetup;
use crate::store::{EntityStore, Schema};
use crate::world::WorldBox;

impl<const D: usize> RegionState<D> {
    /// Appends the snapshot.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_u64(out, self.tick());
        self.handover().write_snapshot(out);
        self.store().write_snapshot(out);
    }

    /// Returns a record that contains the whole present state. A subscriber that applies the record replaces its copy
    /// of the state.
    pub fn whole(&self) -> Vec<u8> {
        let mut snapshot = Vec::with_capacity(self.store().snapshot_bytes() + 64);
        self.write(&mut snapshot);
        let mut record = Vec::with_capacity(snapshot.len() + 5);
        RecordSection::Whole(snapshot).encode(&mut record);
        record
    }

    /// Builds the state from a record that [`whole`](RegionState::whole) returned.
    pub fn read_whole(setup: &RegionSetup<D>, record: &[u8]) -> Result<RegionState<D>, RecordError> {
        let handover = Handover::new(setup.region, 0, setup.standby, setup.timing);
        let store = EntityStore::new(setup.schema.clone(), setup.limits);
        let handover = handover.with_limits(setup.limits.handover);
        let mut state = RegionState::new(setup.world, store, handover);
        state.follow(record)?;
        Ok(state)
    }

    /// Decodes a snapshot of a region with the same world and components.
    pub(crate) fn read(&self, snapshot: &[u8]) -> Result<RegionState<D>, RecordError> {
        let (standby, timing) = (self.handover().standby(), self.handover().timing());
        read(self.world(), self.store().schema(), *self.store().limits(), (standby, timing), snapshot)
    }
}

fn read<const D: usize>(
    world: &WorldBox<D>,
    schema: &Schema,
    limits: RegionLimits,
    (standby, timing): (StandbyMode, HandoverTiming),
    snapshot: &[u8],
) -> Result<RegionState<D>, RecordError> {
    let mut fields = Fields::versioned(snapshot)?;
    let tick = fields.u64()?;
    let handover = Handover::read_snapshot(&mut fields, standby, timing)?.with_limits(limits.handover);
    let store = EntityStore::read_snapshot(&mut fields, schema, limits)?;
    fields.end()?;
    Ok(RegionState::restored(*world, store, handover, tick))
}
