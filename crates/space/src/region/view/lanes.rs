//! Finds the entities around several adjacent entities at once: compares each candidate with all of the adjacent
//! entities.

use super::{SeenState, VisibleEntities};
use crate::behaviour::{LANES, NearbyEntityLanes, OtherEntityLanes, OwnEntityLanes, SimdLanes};
use crate::entity::EntityId;
use crate::index::RowsAround;
use crate::shape::Aabb;

/// Slots of the entities that a behaviour moves together.
#[derive(Debug, Clone, Copy)]
pub(in crate::region) struct LaneSlots {
    slots: [u32; LANES],
    count: usize,
}

impl LaneSlots {
    pub(in crate::region) fn new() -> LaneSlots {
        LaneSlots { slots: [0; LANES], count: 0 }
    }

    /// Adds a slot; the caller has checked that there is room.
    #[inline(always)]
    pub(in crate::region) fn push(&mut self, slot: usize) {
        // Unused lanes repeat the last slot.
        self.slots[self.count..].fill(slot as u32);
        self.count += 1;
    }

    pub(in crate::region) fn is_full(&self) -> bool {
        self.count == LANES
    }

    #[inline(always)]
    pub(in crate::region) fn slots(&self) -> &[u32] {
        &self.slots[..self.count]
    }

    /// Copies the entities into the form in which a behaviour receives them.
    #[inline(always)]
    pub(in crate::region) fn own<const D: usize>(
        &self,
        view: &VisibleEntities<D>,
        ids: &[EntityId],
    ) -> OwnEntityLanes<D> {
        let mut own = OwnEntityLanes {
            ids: [EntityId(0); LANES],
            kinds: [0; LANES],
            position: [[0.0; LANES]; D],
            velocity: [[0.0; LANES]; D],
        };
        for (lane, slot) in self.slots.into_iter().enumerate() {
            let (slot, columns) = (slot as usize, view.grid.columns());
            let SeenState { velocity, kind } = view.states[slot];
            (own.ids[lane], own.kinds[lane]) = (ids[view.item(slot)], kind);
            for axis in 0..D {
                own.position[axis][lane] = columns[axis][slot];
                own.velocity[axis][lane] = velocity[axis];
            }
        }
        own
    }
}

/// Finds the entities within sight of at least one lane's entity.
pub(in crate::region) struct LanesInSight<'a, const D: usize> {
    pub(in crate::region) view: &'a VisibleEntities<D>,
    pub(in crate::region) group: &'a LaneSlots,
    pub(in crate::region) position: [SimdLanes; D],
}

impl<const D: usize> NearbyEntityLanes<D> for LanesInSight<'_, D> {
    #[inline(always)]
    fn others(&self) -> impl Iterator<Item = OtherEntityLanes<D>> {
        let mut bounds = Aabb { min: [f32::INFINITY; D], max: [f32::NEG_INFINITY; D] };
        for axis in 0..D {
            for lane in 0..LANES {
                bounds.min[axis] = bounds.min[axis].min(self.position[axis][lane]);
                bounds.max[axis] = bounds.max[axis].max(self.position[axis][lane]);
            }
        }
        let rows = self.view.grid.rows_around(bounds, self.view.reach(&bounds));
        Others { seen: self, sight_sq: self.view.sight * self.view.sight, rows, slot: 0, end: 0 }
    }
}

struct Others<'a, const D: usize> {
    seen: &'a LanesInSight<'a, D>,
    sight_sq: f32,
    rows: RowsAround<'a, D>,
    slot: usize,
    end: usize,
}

impl<const D: usize> Iterator for Others<'_, D> {
    type Item = OtherEntityLanes<D>;

    #[inline(always)]
    fn next(&mut self) -> Option<OtherEntityLanes<D>> {
        while self.slot == self.end {
            std::ops::Range { start: self.slot, end: self.end } = self.rows.next()?;
        }
        let other = self.other(self.slot);
        self.slot += 1;
        // This method also returns entities out of sight. A branch that skips them would be mispredicted too often.
        Some(other)
    }
}

impl<const D: usize> Others<'_, D> {
    #[inline(always)]
    fn other(&self, slot: usize) -> OtherEntityLanes<D> {
        let (view, position) = (self.seen.view, &self.seen.position);
        let (SeenState { velocity, kind }, columns) = (view.states[slot], view.grid.columns());
        let mut other = OtherEntityLanes {
            kind,
            velocity,
            offset: [[0.0; LANES]; D],
            distance_sq: [0.0; LANES],
            seen: [0.0; LANES],
        };
        for axis in 0..D {
            for lane in 0..LANES {
                let beside = columns[axis][slot] - position[axis][lane];
                other.offset[axis][lane] = beside;
                other.distance_sq[lane] += beside * beside;
            }
        }
        for lane in 0..LANES {
            let sees =
                (other.distance_sq[lane] <= self.sight_sq) & (self.seen.group.slots[lane] != slot as u32);
            other.seen[lane] = if sees { 1.0 } else { 0.0 };
        }
        other
    }
}
