//! Where a region need not look closely: for each of some thousand cells of the world, whether all of it is the region's own, and whether
//! no neighbour sees into it.
//!
//! Nearly all entities are in such cells. To know it of one takes a third of the time of reckoning its key; less still where the region is
//! a box, as are those of a world that is cut in two or four or eight.

use crate::behaviour::LANES;
use crate::curve::{Curve, Morton};
use crate::index::Columns;
use crate::shape::Aabb;
use crate::world::{CELL_BITS, PLACE_BITS, Point, World};

/// See the module.
#[derive(Debug)]
pub(super) struct Home<const D: usize> {
    world: World<D>,
    cells: Vec<u8>,
    /// Boxes within which all cells are own, and inside, where such cells are a box.
    core: Aabb<D>,
    inside: Aabb<D>,
}

/// Some of the cell is another's.
const BORDER: u8 = 0;
/// All of it is the region's own.
const OWN: u8 = 1;
/// The same goes for all that is within the strip's width of it.
const INSIDE: u8 = 2;

/// Cells within which the strip may lie; where it is wider nothing counts as inside.
const STRIP_CELLS_MAX: usize = 4;

impl<const D: usize> Home<D> {
    /// How often the world is halved: 32,768 cells in three dimensions, 65,536 in two.
    const LEVEL: u32 = if D == 2 { 8 } else { 5 };

    /// Of the region that has these keys, from the first up to the second.
    pub(super) fn new(world: World<D>, stretch: (u64, u64), strip: f32) -> Home<D> {
        let along = 1_usize << Self::LEVEL;
        let keys = 1_u64 << ((CELL_BITS - Self::LEVEL) as usize * D);
        let is_own = |cell: usize| {
            let anchor = |axis: usize| (cell >> (axis as u32 * Self::LEVEL)) & (along - 1);
            let place = std::array::from_fn(|axis| (anchor(axis) as u32) << (PLACE_BITS - Self::LEVEL));
            let first = <Morton as Curve<D>>::key(place);
            first >= stretch.0 && first + keys <= stretch.1
        };
        let own = (0..along.pow(D as u32)).map(|cell| if is_own(cell) { OWN } else { BORDER });
        let mut home = Home { world, cells: own.collect(), core: nowhere(), inside: nowhere() };
        home.mark_inside(strip);
        home.core = home.own_box();
        home.inside = home.inside_box(strip);
        home
    }

    fn mark_inside(&mut self, strip: f32) {
        let (min, max) = (self.world.min(), self.world.max());
        let edge = |axis: usize| (max[axis] - min[axis]) / (1 << Self::LEVEL) as f32;
        let wide_enough = |cells: &usize| {
            // Boxes of cells are a little larger than what they hold.
            let room = |axis: usize| strip * (1.0 + 1e-5) + (max[axis] - min[axis]) * 4e-6;
            (0..D).all(|axis| *cells as f32 * edge(axis) >= room(axis))
        };
        let Some(reach) = (1..=STRIP_CELLS_MAX).find(wide_enough) else { return };
        let mut inside = self.cells.clone();
        for axis in 0..D as u32 {
            (0..reach).for_each(|_| inside = shrunk(&inside, axis * Self::LEVEL, Self::LEVEL));
        }
        self.cells.iter_mut().zip(inside).filter(|(_, own)| *own == OWN).for_each(|(cell, _)| *cell = INSIDE);
    }

    /// A box of all own cells, a little smaller than they are; empty where they are none.
    fn own_box(&self) -> Aabb<D> {
        let last = (1_usize << Self::LEVEL) - 1;
        let along = |cell: usize, axis: usize| (cell >> (axis as u32 * Self::LEVEL)) & last;
        let (mut first, mut end, mut count) = ([usize::MAX; D], [0; D], 0);
        for (cell, _) in self.cells.iter().enumerate().filter(|(_, known)| **known != BORDER) {
            count += 1;
            for axis in 0..D {
                first[axis] = first[axis].min(along(cell, axis));
                end[axis] = end[axis].max(along(cell, axis) + 1);
            }
        }
        if count == 0 || count != (0..D).map(|axis| end[axis] - first[axis]).product::<usize>() {
            return nowhere();
        }
        let (min, max) = (self.world.min(), self.world.max());
        let place = |axis: usize, cells: usize, sign: f32| {
            let extent = max[axis] - min[axis];
            min[axis] + extent * (cells as f32 / (1 << Self::LEVEL) as f32) + sign * extent * 4e-6
        };
        Aabb {
            min: std::array::from_fn(|axis| place(axis, first[axis], 1.0)),
            max: std::array::from_fn(|axis| place(axis, end[axis], -1.0)),
        }
    }

    /// What of the core is further than the strip from its ends, but for those that are the world's.
    fn inside_box(&self, strip: f32) -> Aabb<D> {
        let mut inside = self.core;
        for axis in 0..D {
            let (min, max) = (self.world.min()[axis], self.world.max()[axis]);
            let (end, reach) = ((max - min) * 1e-5, strip * (1.0 + 1e-5) + (max - min) * 4e-6);
            if inside.min[axis] > min + end {
                inside.min[axis] += reach;
            }
            if inside.max[axis] < max - end {
                inside.max[axis] -= reach;
            }
        }
        inside
    }

    /// Whoever is within this is [held](Home::holds); it may be empty.
    #[inline(always)]
    pub(super) fn core(&self) -> Aabb<D> {
        self.core
    }

    /// Passes over rows from this one on, some at a time, that are all hidden: where one may be that is not.
    #[inline(always)]
    pub(super) fn first_near(&self, columns: &Columns<'_, D>, from: usize) -> usize {
        let len = columns.first().map_or(0, |column| column.len());
        let mut row = from;
        while row + LANES <= len {
            let mut within = true;
            for axis in 0..D {
                let (min, max) = (self.inside.min[axis], self.inside.max[axis]);
                let lanes = &columns[axis][row..row + LANES];
                within &= lanes.iter().fold(true, |all, along| all & (*along >= min) & (*along <= max));
            }
            if !within {
                return row;
            }
            row += LANES;
        }
        row
    }

    #[inline(always)]
    fn cell(&self, at: &Point<D>) -> u8 {
        let (place, mut cell) = (self.world.place(at), 0);
        for axis in 0..D {
            cell |= (place[axis] >> (PLACE_BITS - Self::LEVEL)) << (axis as u32 * Self::LEVEL);
        }
        self.cells[cell as usize]
    }

    /// Whether a point is surely in the region's stretch; where it is not, its key says.
    #[inline(always)]
    pub(super) fn holds(&self, at: &Point<D>) -> bool {
        self.cell(at) != BORDER
    }

    /// Whether surely no neighbour sees a point.
    #[inline(always)]
    pub(super) fn hides(&self, at: &Point<D>) -> bool {
        let within = |axis: usize| at[axis] >= self.inside.min[axis] && at[axis] <= self.inside.max[axis];
        (0..D).all(within) || self.cell(at) == INSIDE
    }

    /// Bytes of memory it holds.
    pub(super) fn bytes(&self) -> usize {
        self.cells.capacity()
    }
}

/// A box that nothing is in.
fn nowhere<const D: usize>() -> Aabb<D> {
    Aabb { min: [f32::INFINITY; D], max: [f32::NEG_INFINITY; D] }
}

/// Those cells whose neighbours along an axis are of them as well. Beyond the world there is nobody who sees.
fn shrunk(cells: &[u8], shift: u32, level: u32) -> Vec<u8> {
    let (step, last) = (1_usize << shift, (1_usize << level) - 1);
    let keeps = |cell: usize| {
        let along = (cell >> shift) & last;
        (along == 0 || cells[cell - step] == OWN) && (along == last || cells[cell + step] == OWN)
    };
    (0..cells.len()).map(|cell| if cells[cell] == OWN && keeps(cell) { OWN } else { BORDER }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::RegionId;
    use crate::partition::Partition;

    fn check<const D: usize>(strip: f32, region: u32) -> (usize, usize) {
        let world = World::<D>::cube(100.0).unwrap();
        let ids: Vec<RegionId> = (1..=5).map(RegionId).collect();
        let partition = Partition::even(D, &ids);
        let (first, end) = partition.stretch(RegionId(region)).unwrap();
        let home = Home::new(world, (first, end), strip);
        let own = |at: &Point<D>| (first..end).contains(&Morton::key(world.place(at)));
        let (mut held, mut hidden) = (0, 0);
        for nth in 0..20_000_u64 {
            let along = |axis: u64| ((nth + 1) * (7 + axis) * 40_503 % 10_007) as f32 / 100.07;
            let at: Point<D> = std::array::from_fn(|axis| along(axis as u64));
            held += usize::from(home.holds(&at));
            assert!(!home.holds(&at) || own(&at), "{at:?} is another's");
            if !home.hides(&at) {
                continue;
            }
            hidden += 1;
            for corner in 0..1 << D {
                let sign = |axis: usize| if corner >> axis & 1 == 0 { -strip } else { strip };
                let seen: Point<D> = std::array::from_fn(|axis| (at[axis] + sign(axis)).clamp(0.0, 100.0));
                assert!(own(&seen), "{at:?} is seen from {seen:?}");
            }
        }
        (held, hidden)
    }

    /// How many of so many points are within the core, and how many are passed over as hidden.
    fn passed_over<const D: usize>(regions: u32, region: u32) -> (usize, usize) {
        const COUNT: usize = 30_000;
        let world = World::<D>::new([-30.0; D], [71.3; D]).unwrap();
        let ids: Vec<RegionId> = (1..=regions).map(RegionId).collect();
        let stretch = Partition::even(D, &ids).stretch(RegionId(region)).unwrap();
        let home = Home::new(world, stretch, 1.0);
        // Along a way to and fro, so that those side by side are near each other.
        let at = |nth: usize, axis: usize| {
            let along = (nth * (axis + 3)) as f32 / 1_000.0 % 2.0;
            -30.0 + 101.3 * if along > 1.0 { 2.0 - along } else { along }
        };
        let columns: [Vec<f32>; D] =
            std::array::from_fn(|axis| (0..COUNT).map(|nth| at(nth, axis)).collect());
        let columns: Columns<'_, D> = std::array::from_fn(|axis| &columns[axis][..]);
        let point = |row: usize| std::array::from_fn(|axis| columns[axis][row]);
        let core = home.core();
        let within =
            |row: &usize| (0..D).all(|axis| (core.min[axis]..=core.max[axis]).contains(&columns[axis][*row]));
        let in_core: Vec<usize> = (0..COUNT).filter(within).collect();
        assert!(in_core.iter().all(|row| home.holds(&point(*row))));
        let (mut row, mut passed) = (0, 0);
        while row < COUNT {
            let near = home.first_near(&columns, row);
            (row..near).for_each(|row| assert!(home.hides(&point(row)), "{row} was passed over"));
            passed += near - row;
            row = near + LANES;
        }
        (in_core.len(), passed)
    }

    #[test]
    fn who_is_passed_over_is_hidden_and_who_is_in_the_core_is_held() {
        for (regions, region) in [(1, 1), (2, 1), (2, 2), (4, 3)] {
            let of = [passed_over::<3>(regions, region), passed_over::<2>(regions, region)];
            let least = 20_000 / regions as usize;
            assert!(of.iter().all(|(core, passed)| *core > least && *passed > least), "{regions}: {of:?}");
        }
        assert_eq!(passed_over::<3>(5, 2), (0, 0), "its cells are no box");
    }

    #[test]
    fn what_is_held_is_the_regions_own_and_what_is_hidden_is_far_from_others() {
        for region in 1..=5 {
            let (held, hidden) = check::<3>(1.0, region);
            assert!(held > 2_500 && hidden > 1_000 && hidden < held, "{held}, {hidden}");
            let (held, hidden) = check::<2>(1.5, region);
            assert!(held > 3_000 && hidden > 2_000 && hidden < held, "{held}, {hidden}");
        }
        assert_eq!(check::<3>(20.0, 2).1, 0, "a strip as wide as that is looked at closely");
    }
}
