//! Space-filling curves through all cells of a world, at every level of refinement.
//!
//! Each smallest cell has a key, which is a string of digits. The digit of the coarsest level comes first. All smallest
//! cells whose keys begin with the same digits form one larger cell, and are adjacent on the curve. The order of the
//! keys is the order of the cells on the curve.

mod cell;
mod morton;
mod simplex;
mod tetrahedral;

use std::fmt::Debug;

use crate::world::GridPoint;

pub use cell::Cell;
pub use morton::MortonCurve;
pub use simplex::Simplex;
pub use tetrahedral::TetrahedralCurve;

/// A space-filling curve, which puts the world's smallest cells into an order.
pub trait Curve<const D: usize>: Copy + Default + Debug + Send + Sync + 'static {
    /// Position of a cell on the curve.
    type Key: Copy + Ord + Default + Debug + Send + Sync + 'static;

    /// Number of digits of a key.
    const DIGITS: u32;

    /// Key of the smallest cell that holds a point of the grid.
    fn key(point: GridPoint<D>) -> Self::Key;

    /// Digit `index` of a key, a number below 8. Index 0 is the digit of the coarsest level.
    fn digit(key: Self::Key, index: u32) -> usize;

    /// Sorts pairs by key; the sort is stable. `scratch` is memory that the sort may use.
    fn sort(pairs: &mut Vec<(Self::Key, u32)>, scratch: &mut Vec<(Self::Key, u32)>);
}
