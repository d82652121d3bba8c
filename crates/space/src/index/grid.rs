//! A uniform grid: all cells have one size, and the points of a cell are stored next to each other.
//!
//! Invariants: the cells depend only on the world and the cell size, so two grids with the same world and cell size
//! assign every point to the same cell. Within a cell, points keep the order in which they were given. Points outside
//! the world are in the cells at the world's border.
//!
//! A grid has at most [`CELLS_MAX`] cells, which take 16 MiB. If there would be more cells, the grid uses larger ones.
//!
//! The grid is the fastest index for neighbours within a fixed radius. If many points lie close together, a search in
//! the grid has to check many of them. A search in a tree checks fewer.

use super::{NearItem, NearestItems, PointColumns, SpatialIndex, point_at};
use crate::shape::{Aabb, Shape, distance_sq};
use crate::world::{Point, WorldBox};

/// Maximum number of cells in a grid.
pub const CELLS_MAX: usize = 1 << 22;

/// Maximum number of cells in a grid that [`Grid::for_sight`] creates. If more cells would be necessary, cells are
/// longer along the first axis. With more cells than points, a search would spend most of its time on empty cells.
const SIGHT_CELLS_MAX: usize = 1 << 19;

/// The search for an item's nearest items begins with a certain radius: the radius that the previous item needed,
/// multiplied by this factor.
const RADIUS_GUESS: f32 = 1.1;
/// Factor by which the radius of a search grows while the ball holds too few items.
const RADIUS_GROWTH: f32 = 1.3;

/// A spatial index of equally large cells.
#[derive(Debug, Clone)]
pub struct Grid<const D: usize> {
    world: WorldBox<D>,
    /// Number of cells along each axis, and number of cells per unit of length.
    counts: [usize; D],
    per_unit: Point<D>,
    /// Length of a cell along each axis.
    lengths: Point<D>,
    /// First slot of each cell, and the number of slots as the last value. A slot is the place of a point in `at`.
    starts: Vec<u32>,
    /// Coordinates of the points, by slot.
    at: [Vec<f32>; D],
    items: Vec<u32>,
    slots: Vec<u32>,
}

impl<const D: usize> Grid<D> {
    /// Creates an empty grid with cells of this length, or of a greater length if there would be more than
    /// `CELLS_MAX` cells.
    pub fn new(world: WorldBox<D>, length: f32) -> Grid<D> {
        Grid::with_cells_max(world, length, CELLS_MAX)
    }

    /// Like [`Grid::new`], but with at most `cells_max` cells.
    pub(crate) fn with_cells_max(world: WorldBox<D>, length: f32, cells_max: usize) -> Grid<D> {
        Grid::with_parts(world, length, 1, cells_max)
    }

    /// Creates an empty grid for searches within the distance `sight`. Cells are a quarter of `sight` long along the
    /// first axis, and `sight` long along the other axes. If there would be too many cells, all cells are larger.
    pub(crate) fn for_sight(world: WorldBox<D>, sight: f32) -> Grid<D> {
        Grid::with_parts(world, sight, 4, CELLS_MAX)
    }

    /// Creates an empty grid. Cells are `length / parts` long along the first axis, and `length` long along the other
    /// axes. Cells are longer if there would be more than `cells_max` of them.
    fn with_parts(world: WorldBox<D>, length: f32, parts: usize, cells_max: usize) -> Grid<D> {
        let extent: Point<D> = std::array::from_fn(|axis| world.max()[axis] - world.min()[axis]);
        let mut length = if length.is_normal() { length.abs() } else { extent[0] };
        let fitting = |length: f32| -> [usize; D] {
            std::array::from_fn(|axis| {
                let cells = (extent[axis] / length) as usize;
                cells.saturating_mul(if axis == 0 { parts } else { 1 }).clamp(1, CELLS_MAX)
            })
        };
        while fitting(length).iter().fold(1_usize, |all, count| all.saturating_mul(*count)) > cells_max {
            length *= 1.25;
        }
        let mut counts = fitting(length);
        if parts > 1 {
            let rows: usize = counts[1..].iter().product();
            counts[0] = counts[0].min((SIGHT_CELLS_MAX / rows).max(1));
        }
        let per_unit = std::array::from_fn(|axis| counts[axis] as f32 / extent[axis]);
        let lengths = std::array::from_fn(|axis| extent[axis] / counts[axis] as f32);
        let at = std::array::from_fn(|_| Vec::new());
        let (items, slots) = (Vec::new(), Vec::new());
        Grid {
            world,
            counts,
            per_unit,
            lengths,
            starts: vec![0; counts.iter().product::<usize>() + 1],
            at,
            items,
            slots,
        }
    }

    /// The cell of a coordinate along an axis. A greater coordinate never gives a lower cell.
    #[inline(always)]
    fn cell_along(&self, axis: usize, at: f32) -> usize {
        (((at - self.world.min()[axis]) * self.per_unit[axis]) as usize).min(self.counts[axis] - 1)
    }

    #[inline(always)]
    fn cell(&self, at: &Point<D>) -> usize {
        (0..D).rev().fold(0, |cell, axis| cell * self.counts[axis] + self.cell_along(axis, at[axis]))
    }

    /// Visits the slots of all cells that a box touches, row by row; the rows run along the first axis. The order of
    /// the rows does not depend on the points.
    #[inline(always)]
    pub(crate) fn rows(&self, bounds: &Aabb<D>, mut visit: impl FnMut(std::ops::Range<usize>)) {
        let low: [usize; D] = std::array::from_fn(|axis| self.cell_along(axis, bounds.min[axis]));
        let high: [usize; D] = std::array::from_fn(|axis| self.cell_along(axis, bounds.max[axis]));
        let (layers, flat) =
            if D == 3 { (low[D - 1]..=high[D - 1], self.counts[0] * self.counts[1]) } else { (0..=0, 0) };
        for layer in layers {
            for row in low[1]..=high[1] {
                let start = layer * flat + row * self.counts[0];
                visit(self.starts[start + low[0]] as usize..self.starts[start + high[0] + 1] as usize);
            }
        }
    }

    /// The slots of all cells that may hold points within `reach` of a box, row by row; the rows run along the first
    /// axis. Each row is cut to its part within reach. The order of the rows does not depend on the points.
    #[inline(always)]
    pub(crate) fn rows_around(&self, bounds: Aabb<D>, reach: f32) -> RowsAround<'_, D> {
        let (mut first, mut last) = ([0; 2], [0; 2]);
        for axis in 1..D {
            first[axis - 1] = self.cell_along(axis, bounds.min[axis] - reach);
            last[axis - 1] = self.cell_along(axis, bounds.max[axis] + reach);
        }
        RowsAround { grid: self, bounds, reach, first_row: first[0], last, row: first[0], layer: first[1] }
    }

    /// Smallest distance between a box and a row or layer of cells. Rows and layers at the world's border have no outer
    /// edge, because their cells also hold the points outside the world.
    #[inline(always)]
    fn distance_to(&self, axis: usize, cell: usize, bounds: &Aabb<D>) -> f32 {
        let (min, last) = (self.world.min()[axis], self.counts[axis] - 1);
        let low = if cell == 0 { f32::NEG_INFINITY } else { min + cell as f32 * self.lengths[axis] };
        let high = if cell == last { f32::INFINITY } else { min + (cell + 1) as f32 * self.lengths[axis] };
        // Allows for rounded cell edges.
        let margin = (self.world.max()[axis] - min) * 1e-6;
        ((low - bounds.max[axis]).max(bounds.min[axis] - high) - margin).max(0.0)
    }

    /// Number of cells.
    #[cfg(test)]
    pub(crate) fn cell_count(&self) -> usize {
        self.counts.iter().product()
    }

    /// Number of rows of cells along the first axis.
    pub(crate) fn row_count(&self) -> usize {
        self.counts[1..].iter().product()
    }

    /// Slots of a row of cells.
    pub(crate) fn row(&self, nth: usize) -> std::ops::Range<usize> {
        let first = nth * self.counts[0];
        self.starts[first] as usize..self.starts[first + self.counts[0]] as usize
    }

    /// Coordinates of the points, by slot.
    #[inline(always)]
    pub(crate) fn columns(&self) -> [&[f32]; D] {
        std::array::from_fn(|axis| &self.at[axis][..])
    }

    /// Item in each slot.
    pub(crate) fn items(&self) -> &[u32] {
        &self.items
    }

    /// Sorts the points within each cell. `by` returns the sort key of a point's item. `scratch` is memory for
    /// temporary use by the sort.
    pub(crate) fn sort_cells<K: Copy + Ord>(
        &mut self,
        by: impl Fn(usize) -> K,
        scratch: &mut Vec<(K, u32, Point<D>)>,
    ) {
        for cell in 1..self.starts.len() {
            let slots = self.starts[cell - 1] as usize..self.starts[cell] as usize;
            if slots.len() < 2 {
                continue;
            }
            scratch.clear();
            scratch.extend(slots.clone().map(|slot| {
                let item = self.items[slot];
                (by(item as usize), item, self.slot(slot))
            }));
            scratch.sort_unstable_by_key(|(key, item, _)| (*key, *item));
            for (slot, (_, item, at)) in slots.zip(&*scratch) {
                self.items[slot] = *item;
                self.slots[*item as usize] = slot as u32;
                self.at.iter_mut().zip(at).for_each(|(column, along)| column[slot] = *along);
            }
        }
    }

    /// Replaces all points by `count` points, which the function `point` returns.
    pub(crate) fn rebuild_with(&mut self, count: usize, point: impl Fn(usize) -> Point<D>) {
        self.starts.fill(0);
        // Until an item has a slot, `slots` holds the item's cell.
        let mut slots = std::mem::take(&mut self.slots);
        slots.resize(count, 0);
        for (item, cell_or_slot) in slots.iter_mut().enumerate() {
            *cell_or_slot = self.cell(&point(item)) as u32;
            self.starts[*cell_or_slot as usize + 1] += 1;
        }
        for cell in 1..self.starts.len() {
            self.starts[cell] += self.starts[cell - 1];
        }
        self.items.resize(count, 0);
        self.at.iter_mut().for_each(|column| column.resize(count, 0.0));
        // While items are placed, each start advances until it equals the start of the next cell. Afterwards, all
        // starts are restored.
        for (item, cell_or_slot) in slots.iter_mut().enumerate() {
            let start = &mut self.starts[*cell_or_slot as usize];
            let slot = *start as usize;
            *start += 1;
            *cell_or_slot = slot as u32;
            self.items[slot] = item as u32;
            let at = point(item);
            self.at.iter_mut().zip(at).for_each(|(column, along)| column[slot] = along);
        }
        self.slots = slots;
        let last = self.starts.len() - 1;
        self.starts.copy_within(0..last, 1);
        self.starts[0] = 0;
    }

    #[inline(always)]
    pub(crate) fn slot(&self, slot: usize) -> Point<D> {
        std::array::from_fn(|axis| self.at[axis][slot])
    }

    fn box_around(at: &Point<D>, reach: f32) -> Aabb<D> {
        Aabb { min: at.map(|along| along - reach), max: at.map(|along| along + reach) }
    }

    /// Fills `found`: for each item in turn, with the `nearest.most()` items that are nearest to this item, without the
    /// item itself. Returns `false` if there are too few items; `found` is then incomplete.
    ///
    /// The items are handled cell by cell, because items of one cell have the same neighbouring cells, and need about
    /// the same radius.
    fn nearest_by_slot(&self, nearest: &mut NearestItems, found: &mut Vec<NearItem>) -> bool {
        let count = nearest.most();
        found.clear();
        found.resize(self.len() * count, NearItem { item: 0, distance_sq: 0.0 });
        if count == 0 {
            return true;
        }
        let cell = self.lengths.iter().fold(0.0_f32, |cell, length| cell.max(*length));
        let mut guess = cell;
        for slot in 0..self.len() {
            let (at, item) = (self.slot(slot), self.items[slot]);
            if !self.search_ball(&at, item, &mut guess, nearest) {
                self.search(&at, Some(item), nearest);
            }
            let first = item as usize * count;
            let slots = found[first..first + count].iter_mut();
            if slots.zip(nearest.found()).map(|(slot, near)| *slot = near).count() < count {
                return false;
            }
            // The search for the next item begins with a little more than the radius that this item needed.
            guess = (nearest.reach().sqrt() * RADIUS_GUESS).max(cell / 8.0);
        }
        true
    }

    /// Searches a ball around an item. Enlarges the ball until it holds enough items, and then returns `true`. Returns
    /// `false` if the ball becomes larger than the world.
    #[inline(always)]
    fn search_ball(&self, at: &Point<D>, item: u32, reach: &mut f32, nearest: &mut NearestItems) -> bool {
        let (low, high) = (self.world.min(), self.world.max());
        let extent = (0..D).fold(0.0_f32, |most, axis| most.max(high[axis] - low[axis]));
        let far = (0..D).fold(0.0_f32, |most, axis| most.max(low[axis].abs()).max(high[axis].abs()));
        // Allows for rounding at the ball's edges.
        let margin = far * 1e-6;
        while *reach <= extent && *reach > margin {
            nearest.clear();
            let within = *reach * *reach;
            for slots in self.rows_around(Aabb { min: *at, max: *at }, *reach + margin) {
                let others = slots.clone().zip(&self.items[slots]);
                for (slot, other) in others {
                    let distance = distance_sq(at, &self.slot(slot));
                    if distance <= within && *other != item {
                        nearest.offer(distance, *other);
                    }
                }
            }
            if nearest.is_full() {
                return true;
            }
            *reach *= RADIUS_GROWTH;
        }
        false
    }

    /// Searches a growing box around the point until no item outside the box can be nearer than the items found.
    fn search(&self, at: &Point<D>, excluded: Option<u32>, nearest: &mut NearestItems) {
        let mut reach = self.lengths.iter().fold(0.0_f32, |cell, length| cell.max(*length));
        loop {
            nearest.clear();
            self.rows(&Grid::box_around(at, reach), |slots| {
                for slot in slots.filter(|slot| Some(self.items[*slot]) != excluded) {
                    nearest.offer(distance_sq(at, &self.slot(slot)), self.items[slot]);
                }
            });
            // The distance of an item outside the box is at least the distance of the box's nearest face. This is true
            // in spite of rounding, because both distances are rounded in the same way.
            let bounds = Grid::box_around(at, reach);
            let known = (0..D).fold(f32::INFINITY, |known, axis| {
                known.min(bounds.max[axis] - at[axis]).min(at[axis] - bounds.min[axis])
            });
            let all = self.world.min().iter().zip(&bounds.min).all(|(world, reached)| reached <= world)
                && self.world.max().iter().zip(&bounds.max).all(|(world, reached)| reached >= world);
            if nearest.reach() < known * known || all || !reach.is_finite() {
                return;
            }
            reach *= 2.0;
        }
    }
}

/// Iterator of [`Grid::rows_around`].
pub(crate) struct RowsAround<'a, const D: usize> {
    grid: &'a Grid<D>,
    bounds: Aabb<D>,
    reach: f32,
    first_row: usize,
    /// Number of the last row and of the last layer.
    last: [usize; 2],
    row: usize,
    layer: usize,
}

impl<const D: usize> Iterator for RowsAround<'_, D> {
    type Item = std::ops::Range<usize>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (grid, bounds) = (self.grid, &self.bounds);
        while self.layer <= self.last[1] {
            let (layer, row) = (self.layer, self.row);
            let is_last = row >= self.last[0];
            (self.row, self.layer) = if is_last { (self.first_row, layer + 1) } else { (row + 1, layer) };
            let beyond = if D == 3 { grid.distance_to(D - 1, layer, bounds) } else { 0.0 };
            let beside = grid.distance_to(1, row, bounds);
            let left_sq = self.reach * self.reach - (beyond * beyond + beside * beside);
            if left_sq >= 0.0 {
                // Needs no further margin: the reach was already increased by more than the rounding error.
                let half = left_sq.sqrt();
                let (low, high) =
                    (grid.cell_along(0, bounds.min[0] - half), grid.cell_along(0, bounds.max[0] + half));
                let start = (layer * if D == 3 { grid.counts[1] } else { 0 } + row) * grid.counts[0];
                return Some(grid.starts[start + low] as usize..grid.starts[start + high + 1] as usize);
            }
        }
        None
    }
}

impl<const D: usize> SpatialIndex<D> for Grid<D> {
    fn rebuild(&mut self, points: PointColumns<'_, D>) {
        self.rebuild_with(points[0].len(), |item| point_at(&points, item));
    }

    fn len(&self) -> usize {
        self.items.len()
    }

    fn within<S: Shape<D>>(&self, shape: &S, found: &mut Vec<u32>) {
        let everywhere = Aabb { min: [f32::NEG_INFINITY; D], max: [f32::INFINITY; D] };
        self.rows(&shape.bounds().unwrap_or(everywhere), |slots| {
            found.extend(slots.filter(|slot| shape.contains(&self.slot(*slot))).map(|slot| self.items[slot]));
        });
    }

    fn nearest(&self, at: &Point<D>, count: usize, found: &mut Vec<NearItem>) {
        let mut nearest = NearestItems::new(count);
        self.search(at, None, &mut nearest);
        found.clear();
        found.extend(nearest.found());
    }

    fn nearest_of_each(&self, count: usize, found: &mut Vec<NearItem>) {
        let mut nearest = NearestItems::new(count.min(self.len().saturating_sub(1)));
        if self.nearest_by_slot(&mut nearest, found) {
            return;
        }
        // Some item has fewer other items than requested, so `nearest_by_slot` cannot know the indices of the results.
        found.clear();
        for item in 0..self.len() as u32 {
            self.search(&self.point(item), Some(item), &mut nearest);
            found.extend(nearest.found());
        }
    }

    fn point(&self, item: u32) -> Point<D> {
        self.slot(self.slots[item as usize] as usize)
    }

    fn bytes(&self) -> usize {
        let words = self.starts.capacity() + self.items.capacity() + self.slots.capacity();
        let coordinates: usize = self.at.iter().map(Vec::capacity).sum();
        (words + coordinates) * 4
    }
}
