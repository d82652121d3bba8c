//! Marks the cells of the world that belong wholly to a region. Among these cells, marks those into which no
//! neighbouring region sees.
//!
//! Almost all entities are in such cells. To look up a cell's mark takes a third of the time that computing a key
//! takes. If the region is a box, as in a world with two, four or eight regions, the lookup takes even less time.

use crate::behaviour::LANES;
use crate::curve::{Curve, MortonCurve};
use crate::index::PointColumns;
use crate::shape::Aabb;
use crate::world::{CELL_BITS, GRID_BITS, Point, WorldBox};

/// The cells of the world, each with its mark for one region: `BORDER`, `OWN` or `INSIDE`.
#[derive(Debug)]
pub(super) struct InteriorCells<const D: usize> {
    world: WorldBox<D>,
    cells: Vec<u8>,
    /// A box within the region's own cells; empty if these cells do not form a box.
    core: Aabb<D>,
    /// The part of `core` that no neighbour sees; may be empty.
    inside: Aabb<D>,
}

/// Mark of a cell of which at least a part belongs to another region.
const BORDER: u8 = 0;
/// Mark of a cell that belongs wholly to the region.
const OWN: u8 = 1;
/// Mark of a cell that belongs wholly to the region, and around which everything within the strip's width belongs to
/// the region too.
const INSIDE: u8 = 2;

/// Maximum number of cells across the strip's width; with a wider strip, no cell is marked as inside.
const STRIP_CELLS_MAX: usize = 4;

impl<const D: usize> InteriorCells<D> {
    /// How many times each axis of the world is halved to make cells. This gives 32,768 cells in three
    /// dimensions, 65,536 in two.
    const LEVEL: u32 = if D == 2 { 8 } else { 5 };

    /// Marks the cells of a region whose keys begin at `stretch.0` and end before `stretch.1`.
    pub(super) fn new(world: WorldBox<D>, stretch: (u64, u64), strip: f32) -> InteriorCells<D> {
        let along = 1_usize << Self::LEVEL;
        let keys = 1_u64 << ((CELL_BITS - Self::LEVEL) as usize * D);
        let is_own = |cell: usize| {
            let anchor = |axis: usize| (cell >> (axis as u32 * Self::LEVEL)) & (along - 1);
            let place = std::array::from_fn(|axis| (anchor(axis) as u32) << (GRID_BITS - Self::LEVEL));
            let first = <MortonCurve as Curve<D>>::key(place);
            first >= stretch.0 && first + keys <= stretch.1
        };
        let own = (0..along.pow(D as u32)).map(|cell| if is_own(cell) { OWN } else { BORDER });
        let mut interior =
            InteriorCells { world, cells: own.collect(), core: Aabb::EMPTY, inside: Aabb::EMPTY };
        interior.mark_inside(strip);
        interior.core = interior.own_box();
        interior.inside = interior.inside_box(strip);
        interior
    }

    /// Distance kept from borders along an axis: four times the rounding error of a point.
    fn slack(&self, axis: usize) -> f32 {
        4.0 * self.world.rounding(axis)
    }

    /// How far a neighbour may see beyond the border along an axis.
    fn reach(&self, axis: usize, strip: f32) -> f32 {
        strip * (1.0 + 1e-5) + self.slack(axis)
    }

    fn edge(&self, axis: usize) -> f32 {
        (self.world.max()[axis] - self.world.min()[axis]) / (1 << Self::LEVEL) as f32
    }

    fn mark_inside(&mut self, strip: f32) {
        let wide_enough =
            |cells: &usize| (0..D).all(|axis| *cells as f32 * self.edge(axis) >= self.reach(axis, strip));
        let Some(reach) = (1..=STRIP_CELLS_MAX).find(wide_enough) else { return };
        let mut inside = self.cells.clone();
        for axis in 0..D as u32 {
            (0..reach).for_each(|_| inside = shrunk(&inside, axis * Self::LEVEL, Self::LEVEL));
        }
        self.cells.iter_mut().zip(inside).filter(|(_, own)| *own == OWN).for_each(|(cell, _)| *cell = INSIDE);
    }

    /// A box a little smaller than the region's own cells together. The box is empty if these cells do not form a box,
    /// or if a cell is not much larger than the rounding error.
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
        let is_box = count > 0 && count == (0..D).map(|axis| end[axis] - first[axis]).product::<usize>();
        if !is_box || (0..D).any(|axis| self.edge(axis) < 4.0 * self.slack(axis)) {
            return Aabb::EMPTY;
        }
        let place = |axis: usize, cells: usize, sign: f32| {
            self.world.min()[axis] + self.edge(axis) * cells as f32 + sign * self.slack(axis)
        };
        Aabb {
            min: std::array::from_fn(|axis| place(axis, first[axis], 1.0)),
            max: std::array::from_fn(|axis| place(axis, end[axis], -1.0)),
        }
    }

    /// The part of the core that is more than the strip's width away from the core's faces, not counting faces at the
    /// world's border.
    fn inside_box(&self, strip: f32) -> Aabb<D> {
        let mut inside = self.core;
        for axis in 0..D {
            let (reach, end) = (self.reach(axis, strip), 2.0 * self.slack(axis));
            if inside.min[axis] > self.world.min()[axis] + end {
                inside.min[axis] += reach;
            }
            if inside.max[axis] < self.world.max()[axis] - end {
                inside.max[axis] -= reach;
            }
        }
        inside
    }

    /// Returns a box whose points all [surely](InteriorCells::surely_contains) belong to the region. The box may be
    /// empty.
    #[inline(always)]
    pub(super) fn core(&self) -> Aabb<D> {
        self.core
    }

    /// Beginning at row `from`, skips groups of rows with entities that no neighbour sees. Returns the first row that
    /// was not skipped.
    #[inline(always)]
    pub(super) fn skip_unseen(&self, columns: &PointColumns<'_, D>, from: usize) -> usize {
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
        let (grid_point, mut cell) = (self.world.grid_point(at), 0);
        for axis in 0..D {
            cell |= (grid_point[axis] >> (GRID_BITS - Self::LEVEL)) << (axis as u32 * Self::LEVEL);
        }
        self.cells[cell as usize]
    }

    /// Whether a point is certainly in the region's stretch. If `false`, only the point's key can decide this.
    #[inline(always)]
    pub(super) fn surely_contains(&self, at: &Point<D>) -> bool {
        self.cell(at) != BORDER
    }

    /// Returns `true` only if it is certain that no neighbour sees the point.
    #[inline(always)]
    pub(super) fn is_unseen(&self, at: &Point<D>) -> bool {
        let within = |axis: usize| at[axis] >= self.inside.min[axis] && at[axis] <= self.inside.max[axis];
        (0..D).all(within) || self.cell(at) == INSIDE
    }

    /// Memory in use, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.cells.capacity()
    }
}

/// Returns new marks for cells. A cell keeps the mark `OWN` only if its two neighbours along one axis also have the
/// mark `OWN`. All other cells get the mark `BORDER`. Neighbours outside the world count as `OWN`.
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

    struct Trial<const D: usize> {
        world: WorldBox<D>,
        stretch: (u64, u64),
        strip: f32,
        interior: InteriorCells<D>,
    }

    impl<const D: usize> Trial<D> {
        fn new(world: WorldBox<D>, regions: u32, region: u32, strip: f32) -> Trial<D> {
            let ids: Vec<RegionId> = (1..=regions).map(RegionId).collect();
            let stretch = Partition::even(D, &ids).stretch(RegionId(region)).unwrap();
            Trial { world, stretch, strip, interior: InteriorCells::new(world, stretch, strip) }
        }

        fn is_own(&self, at: &Point<D>) -> bool {
            (self.stretch.0..self.stretch.1).contains(&MortonCurve::key(self.world.grid_point(at)))
        }

        /// Panics if a neighbouring region may see a point. Checks the corners of a box around the point. The box
        /// reaches as far as a neighbouring region sees.
        fn assert_hidden(&self, at: &Point<D>) {
            let (min, max) = (self.world.min(), self.world.max());
            for corner in 0..1 << D {
                let sign = |axis: usize| if corner >> axis & 1 == 0 { -self.strip } else { self.strip };
                let seen: Point<D> =
                    std::array::from_fn(|axis| (at[axis] + sign(axis)).clamp(min[axis], max[axis]));
                assert!(
                    self.is_own(&seen),
                    "{at:?} is seen from {seen:?}: {self:?}",
                    self = self.interior.inside
                );
            }
        }

        fn is_in_core(&self, at: &Point<D>) -> bool {
            let core = self.interior.core();
            (0..D).all(|axis| (core.min[axis]..=core.max[axis]).contains(&at[axis]))
        }

        /// Returns two counts: the points in the region, and those of them that no neighbouring region sees.
        fn count_points(&self, points: impl Iterator<Item = Point<D>>) -> (usize, usize) {
            let (mut held, mut hidden) = (0, 0);
            for at in points {
                if self.interior.surely_contains(&at) {
                    held += 1;
                    assert!(self.is_own(&at), "{at:?} belongs to another region");
                }
                assert!(
                    !self.is_in_core(&at) || self.is_own(&at),
                    "{at:?} in the core belongs to another region"
                );
                if self.interior.is_unseen(&at) {
                    hidden += 1;
                    self.assert_hidden(&at);
                }
            }
            (held, hidden)
        }
    }

    fn scattered_point<const D: usize>(nth: u64) -> Point<D> {
        std::array::from_fn(|axis| ((nth + 1) * (7 + axis as u64) * 40_503 % 10_007) as f32 / 100.07)
    }

    /// Returns points whose coordinates are on a border between quarters of the world, or the strip's width away from
    /// such a border. Each coordinate is moved by a few of the smallest steps of an `f32`.
    fn beside_borders<const D: usize>(world: WorldBox<D>, strip: f32) -> impl Iterator<Item = Point<D>> {
        let beside = move |axis: usize, mut nth: u64| {
            let mut of = |count: u64| {
                let one = nth % count;
                nth /= count;
                one as f32
            };
            let extent = world.max()[axis] - world.min()[axis];
            let border = world.min()[axis] + extent * of(5) / 4.0 + (of(3) - 1.0) * strip;
            let steps = of(9) as i32 - 4;
            let along = (0..steps.abs())
                .fold(border, |along, _| if steps < 0 { along.next_down() } else { along.next_up() });
            along.clamp(world.min()[axis], world.max()[axis])
        };
        let mut dice = 1_u64;
        (0..15_000).map(move |_| {
            std::array::from_fn(|axis| {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                beside(axis, dice >> 33)
            })
        })
    }

    /// Returns two counts: the points within the core, and the points that are skipped because no neighbouring region
    /// sees them.
    fn count_skipped<const D: usize>(regions: u32, region: u32) -> (usize, usize) {
        const COUNT: usize = 30_000;
        let trial = Trial::<D>::new(WorldBox::new([-30.0; D], [71.3; D]).unwrap(), regions, region, 1.0);
        // A path that goes back and forth, so that successive points are near each other.
        let at = |nth: usize, axis: usize| {
            let along = (nth * (axis + 3)) as f32 / 1_000.0 % 2.0;
            -30.0 + 101.3 * if along > 1.0 { 2.0 - along } else { along }
        };
        let columns: [Vec<f32>; D] =
            std::array::from_fn(|axis| (0..COUNT).map(|nth| at(nth, axis)).collect());
        let columns: PointColumns<'_, D> = std::array::from_fn(|axis| &columns[axis][..]);
        let point = |row: usize| std::array::from_fn(|axis| columns[axis][row]);
        let in_core = (0..COUNT).filter(|row| trial.is_in_core(&point(*row)));
        let in_core = in_core.inspect(|row| assert!(trial.interior.surely_contains(&point(*row)))).count();
        let (mut row, mut skipped) = (0, 0);
        while row < COUNT {
            let next_row = trial.interior.skip_unseen(&columns, row);
            (row..next_row).for_each(|row| trial.assert_hidden(&point(row)));
            skipped += next_row - row;
            row = next_row + LANES;
        }
        (in_core, skipped)
    }

    #[test]
    fn region_skips_border_checks_only_for_inner_entities() {
        for (regions, region) in [(1, 1), (2, 1), (2, 2), (4, 3)] {
            let of = [count_skipped::<3>(regions, region), count_skipped::<2>(regions, region)];
            let least = 20_000 / regions as usize;
            assert!(of.iter().all(|(core, skipped)| *core > least && *skipped > least), "{regions}: {of:?}");
        }
        assert_eq!(count_skipped::<3>(5, 2), (0, 0), "its cells are no box");
    }

    #[test]
    fn fast_region_check_accepts_only_points_of_the_region() {
        let (space, plane) = (WorldBox::<3>::cube(100.0).unwrap(), WorldBox::<2>::cube(100.0).unwrap());
        for region in 1..=5 {
            let (held, hidden) =
                Trial::new(space, 5, region, 1.0).count_points((0..20_000).map(scattered_point));
            assert!(held > 2_500 && hidden > 1_000 && hidden < held, "{held}, {hidden}");
            let (held, hidden) =
                Trial::new(plane, 5, region, 1.5).count_points((0..20_000).map(scattered_point));
            assert!(held > 3_000 && hidden > 2_000 && hidden < held, "{held}, {hidden}");
        }
        let (_, hidden) = Trial::new(space, 5, 2, 20.0).count_points((0..20_000).map(scattered_point));
        assert_eq!(hidden, 0, "a strip as wide as that is looked at closely");
    }

    /// A small world far from the origin has few distinct coordinates, so the rounding errors of coordinates are larger
    /// than those of grid points.
    #[test]
    fn border_check_finds_points_near_borders_despite_rounding() {
        for origin in [0.0, -500.0, 3e4, 5e5, -5e6, 1e9] {
            let world = WorldBox::<3>::new([origin; 3], [origin + 1_000.0; 3]).unwrap();
            let flat = WorldBox::<2>::new([origin; 2], [origin + 1_000.0; 2]).unwrap();
            for (regions, region) in [(1, 1), (2, 1), (2, 2), (4, 1), (4, 3), (5, 4)] {
                let (held, hidden) =
                    Trial::new(world, regions, region, 10.0).count_points(beside_borders(world, 10.0));
                assert!(
                    origin.abs() > 1e6 || held > 1_000 && hidden > 500,
                    "{origin}, {regions}: {held}, {hidden}"
                );
                Trial::new(flat, regions, region, 10.0).count_points(beside_borders(flat, 10.0));
            }
        }
    }
}
