//! What is where, behind one trait.
//!
//! Every index is exact: it answers as [`Scan`], which looks at everything, does. Items are numbered by their place in the
//! columns that [`Index::rebuild`] was given. An index is rebuilt rather than kept up to date: where all points move, that
//! is less work than to move them one by one (`docs/space.md` has the measurements).

mod grid;
mod near;
mod scan;
mod tree;

use crate::shape::{Beam, Shape};
use crate::world::Point;

pub use grid::Grid;
pub(crate) use grid::RowsAround;
pub use near::Near;
pub(crate) use near::Nearest;
pub use scan::Scan;
pub use tree::{Octree, Tetree, Tree};

/// Coordinates by axis: all of one length.
pub type Columns<'a, const D: usize> = [&'a [f32]; D];

/// Finds items by where they are.
pub trait Index<const D: usize> {
    /// Forgets all, and takes in these. Points are expected to be in the world and finite, which costs speed where it is
    /// not so, never exactness; one with a coordinate that is not a number is in no shape and near nothing.
    fn rebuild(&mut self, points: Columns<'_, D>);

    /// How many items there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the items in a box, ball, beam or frustum, each once, in no order that means anything.
    fn within<S: Shape<D>>(&self, shape: &S, found: &mut Vec<u32>);

    /// The `count` items nearest to a point into `found`, the nearest first, of equal distances the lower number first.
    fn nearest(&self, at: &Point<D>, count: usize, found: &mut Vec<Near>);

    /// The same for every item, itself left out: `count` for each into `found`, or all others where there are fewer.
    fn nearest_of_each(&self, count: usize, found: &mut Vec<Near>);

    /// The items that a beam hits into `found`, by how far along it they are, then by number.
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

    /// The other items within a radius of an item, into `found`, by number.
    fn neighbours(&self, item: u32, radius: f32, found: &mut Vec<u32>)
    where
        Self: Sized,
    {
        found.clear();
        self.within(&crate::shape::Ball { center: self.point(item), radius }, found);
        found.retain(|other| *other != item);
        found.sort_unstable();
    }

    /// Where an item was when the index was built.
    fn point(&self, item: u32) -> Point<D>;

    /// Bytes of memory it holds.
    fn bytes(&self) -> usize;
}

/// One point of columns.
#[inline(always)]
pub(crate) fn point_at<const D: usize>(columns: &Columns<'_, D>, at: usize) -> Point<D> {
    std::array::from_fn(|axis| columns[axis][at])
}
