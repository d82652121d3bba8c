//! Spatial indexes, which find items by position and share one trait.
//!
//! Every index is exact: it returns the same items as [`LinearScan`], which checks every item. The number of an item is
//! its row in the columns that [`SpatialIndex::rebuild`] received. An index cannot be updated, only rebuilt: if all
//! points move, a rebuild takes less time than many updates (`docs/space.md` has measurements).

mod grid;
mod near;
mod scan;
mod tree;

use crate::shape::{Beam, Shape};
use crate::world::Point;

pub use grid::Grid;
pub(crate) use grid::RowsAround;
pub use near::NearItem;
pub(crate) use near::NearestItems;
pub use scan::LinearScan;
pub use tree::{Octree, TetrahedralTree, Tree};

/// The coordinates of many points: for each axis, one list of equal length.
pub type PointColumns<'a, const D: usize> = [&'a [f32]; D];

/// An index that finds items by their position.
pub trait SpatialIndex<const D: usize> {
    /// Replaces all items. Points should be finite and inside the world. Other points make queries slower, but the
    /// results stay exact. No query returns a point with a NaN coordinate.
    fn rebuild(&mut self, points: PointColumns<'_, D>);

    /// Number of items.
    fn len(&self) -> usize;

    /// Whether the index is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends to `found` the items in a shape, such as a box or a ball. Each item is appended once; their order is
    /// arbitrary.
    fn within<S: Shape<D>>(&self, shape: &S, found: &mut Vec<u32>);

    /// Fills `found` with the `count` items nearest to a point, the nearest first. Among equal distances, the item with
    /// the lower number comes first.
    fn nearest(&self, at: &Point<D>, count: usize, found: &mut Vec<NearItem>);

    /// Fills `found`. For each item in turn, `found` gets the `count` items that are nearest to this item, the nearest
    /// first; the item itself does not count. If there are fewer than `count` other items, `found` gets all of them for
    /// each item.
    fn nearest_of_each(&self, count: usize, found: &mut Vec<NearItem>);

    /// Fills `found` with the items that a beam hits, ordered by distance along the beam, then by number.
    fn along(&self, beam: &Beam<D>, found: &mut Vec<u32>)
    where
        Self: Sized,
    {
        found.clear();
        self.within(beam, found);
        let mut hits: Vec<(f32, u32)> =
            found.iter().map(|item| (beam.along(&self.point(*item)), *item)).collect();
        hits.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        found.clear();
        found.extend(hits.into_iter().map(|hit| hit.1));
    }

    /// Fills `found` with the other items within a radius of an item, ordered by number.
    fn neighbours(&self, item: u32, radius: f32, found: &mut Vec<u32>)
    where
        Self: Sized,
    {
        found.clear();
        self.within(&crate::shape::Ball { center: self.point(item), radius }, found);
        found.retain(|other| *other != item);
        found.sort_unstable();
    }

    /// Position that an item had when the index was built.
    fn point(&self, item: u32) -> Point<D>;

    /// Memory in use, bytes.
    fn bytes(&self) -> usize;
}

#[inline(always)]
pub(crate) fn point_at<const D: usize>(columns: &PointColumns<'_, D>, at: usize) -> Point<D> {
    std::array::from_fn(|axis| columns[axis][at])
}
