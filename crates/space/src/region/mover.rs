//! Moves the rows of an entity store, and collects the changes for the record.

use super::crossing::is_beyond;
use super::interior::InteriorCells;
use crate::behaviour::{LANES, Motion, OwnEntity, OwnEntityLanes, SimdLanes};
use crate::store::{StoreRows, row_of};
use crate::world::{Point, WorldBox};

/// A tick's record lists the rows with a new velocity only if these rows are at most `1 / LISTED_PART` of all rows.
/// Otherwise, the record contains the velocities of all rows.
const LISTED_PART: usize = 8;

/// The rows of an entity store that a tick changed, in the order in which the tick moved them.
#[derive(Debug, Default)]
pub(super) struct TickChanges {
    /// Rows whose entities are now in another region's stretch.
    pub(super) crossed: Vec<u32>,
    /// Rows with a new velocity. The list stops at the number of rows that the record may list; `turned_count` is the
    /// number of all rows with a new velocity.
    turned: Vec<u32>,
    turned_count: usize,
    /// Rows for which the behaviour returned a number that is not finite.
    pub(super) misplaced: Vec<u32>,
    /// Whether any row moved.
    pub(super) moved: bool,
}

impl TickChanges {
    pub(super) fn clear(&mut self) {
        [&mut self.crossed, &mut self.turned, &mut self.misplaced].into_iter().for_each(Vec::clear);
        (self.turned_count, self.moved) = (0, false);
    }

    #[inline(always)]
    fn record_turned(&mut self, row: usize, listed_max: usize) {
        self.turned_count += 1;
        if self.turned_count <= listed_max {
            self.turned.push(row as u32);
        }
    }

    /// Sorts the rows of each list in ascending order.
    pub(super) fn sort(&mut self) {
        [&mut self.crossed, &mut self.turned, &mut self.misplaced]
            .into_iter()
            .for_each(|rows| rows.sort_unstable());
    }

    /// All rows with a new velocity; `None` if there are too many to list.
    pub(super) fn turned(&self) -> Option<&[u32]> {
        (self.turned_count == self.turned.len()).then_some(&self.turned[..])
    }

    pub(super) fn bytes(&self) -> usize {
        (self.crossed.capacity() + self.turned.capacity() + self.misplaced.capacity()) * 4
    }
}

/// Moves the rows of an entity store in a tick, and collects the changes.
pub(super) struct Mover<'a, const D: usize> {
    pub(super) rows: StoreRows<'a, D>,
    world: WorldBox<D>,
    stretch: (u64, u64),
    interior: &'a InteriorCells<D>,
    changes: &'a mut TickChanges,
    listed_max: usize,
}

impl<'a, const D: usize> Mover<'a, D> {
    pub(super) fn new(
        rows: StoreRows<'a, D>,
        (world, stretch): (WorldBox<D>, (u64, u64)),
        interior: &'a InteriorCells<D>,
        changes: &'a mut TickChanges,
    ) -> Mover<'a, D> {
        let listed_max = rows.ids.len() / LISTED_PART;
        Mover { rows, world, stretch, interior, changes, listed_max }
    }

    #[inline(always)]
    pub(super) fn own(&self, row: usize) -> OwnEntity<D> {
        let StoreRows { ids, kinds, position, velocity, .. } = &self.rows;
        OwnEntity {
            id: ids[row],
            kind: kinds[row],
            position: row_of(position, row),
            velocity: row_of(velocity, row),
        }
    }

    /// Loads [`LANES`] adjacent rows, beginning with `row`. Returns `None` if fewer rows are left, or if the entity of
    /// one of these rows may not move.
    #[inline(always)]
    pub(super) fn own_lanes(&self, row: usize) -> Option<OwnEntityLanes<D>> {
        let StoreRows { ids, kinds, flags, position, velocity } = &self.rows;
        let flags: &[u8; LANES] = flags.get(row..)?.first_chunk()?;
        if u64::from_le_bytes(*flags) != 0 {
            return None;
        }
        let columns = |columns: &[&mut [f32]; D]| {
            let mut lanes: [SimdLanes; D] = [[0.0; LANES]; D];
            for axis in 0..D {
                lanes[axis] = *columns[axis].get(row..)?.first_chunk()?;
            }
            Some(lanes)
        };
        let (ids, kinds) = (*ids.get(row..)?.first_chunk()?, *kinds.get(row..)?.first_chunk()?);
        Some(OwnEntityLanes { ids, kinds, position: columns(position)?, velocity: columns(velocity)? })
    }

    /// Does the same as [`Mover::store_motion`] for each lane.
    #[inline(always)]
    pub(super) fn store_lanes(&mut self, row: usize, own: &OwnEntityLanes<D>, next: &OwnEntityLanes<D>) {
        let (low, high) = (self.world.min(), self.world.max());
        let (mut inside, mut finite, mut held) = (next.position, [true; LANES], [true; LANES]);
        let (mut moved, mut turned) = ([0_u32; LANES], [0_u32; LANES]);
        let core = self.interior.core();
        for axis in 0..D {
            for lane in 0..LANES {
                let (position, velocity) = (next.position[axis][lane], next.velocity[axis][lane]);
                finite[lane] &= position.is_finite() & velocity.is_finite();
                let along = position.max(low[axis]).min(high[axis]);
                inside[axis][lane] = along;
                held[lane] &= (along >= core.min[axis]) & (along <= core.max[axis]);
                moved[lane] |= along.to_bits() ^ own.position[axis][lane].to_bits();
                turned[lane] |= velocity.to_bits() ^ own.velocity[axis][lane].to_bits();
            }
        }
        let any = |bits: &[u32; LANES]| bits.iter().fold(0, |sum, bits| sum | bits) != 0;
        let all = |lanes: &[bool; LANES]| lanes.iter().fold(true, |all, lane| all & lane);
        if !all(&finite) || !all(&held) {
            for lane in 0..LANES {
                let OwnEntity { position, velocity, .. } = next.own(lane);
                self.store_motion(row + lane, &own.own(lane), &Motion { position, velocity });
            }
            return;
        }
        self.changes.moved |= any(&moved) || any(&turned);
        if any(&turned) {
            let lanes = (0..LANES).filter(|lane| turned[*lane] != 0);
            lanes.for_each(|lane| self.changes.record_turned(row + lane, self.listed_max));
            store_lanes(&mut self.rows.velocity, row, &next.velocity);
        }
        store_lanes(&mut self.rows.position, row, &inside);
    }

    /// Moves a row to the position that its behaviour returned.
    #[inline(always)]
    pub(super) fn store_motion(&mut self, row: usize, own: &OwnEntity<D>, motion: &Motion<D>) {
        if !is_finite(motion) {
            self.changes.misplaced.push(row as u32);
            return;
        }
        let (low, high) = (self.world.min(), self.world.max());
        let mut inside = motion.position;
        for axis in 0..D {
            inside[axis] = inside[axis].max(low[axis]).min(high[axis]);
        }
        let turned = differ(&motion.velocity, &own.velocity);
        self.changes.moved |= turned || differ(&inside, &own.position);
        if turned {
            self.changes.record_turned(row, self.listed_max);
        }
        for axis in 0..D {
            self.rows.position[axis][row] = inside[axis];
            self.rows.velocity[axis][row] = motion.velocity[axis];
        }
        if !self.interior.surely_contains(&inside) && is_beyond(&self.world, &inside, self.stretch) {
            self.changes.crossed.push(row as u32);
        }
    }
}

#[inline(always)]
fn store_lanes<const D: usize>(columns: &mut [&mut [f32]; D], row: usize, lanes: &[SimdLanes; D]) {
    for axis in 0..D {
        if let Some(places) = columns[axis].get_mut(row..).and_then(<[f32]>::first_chunk_mut) {
            *places = lanes[axis];
        }
    }
}

/// Whether the two points differ in any bit.
#[inline(always)]
fn differ<const D: usize>(a: &Point<D>, b: &Point<D>) -> bool {
    (0..D).fold(0, |bits, axis| bits | (a[axis].to_bits() ^ b[axis].to_bits())) != 0
}

#[inline(always)]
fn is_finite<const D: usize>(motion: &Motion<D>) -> bool {
    (0..D).fold(true, |finite, axis| {
        finite & motion.position[axis].is_finite() & motion.velocity[axis].is_finite()
    })
}
