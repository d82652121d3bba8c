//! Curves that run through all cells of a world, at every level of refinement at once.
//!
//! A key is a string of digits, the coarsest first: all cells that begin with the same digits are one cell of that level, and
//! stand next to each other on the curve. Keys compare as the curve runs.

mod cell;
mod morton;
mod simplex;
mod tetrahedral;

use std::fmt::Debug;

use crate::world::Place;

pub use cell::Cell;
pub use morton::Morton;
pub use simplex::Simplex;
pub use tetrahedral::Tetrahedral;

/// An order of the world's smallest cells.
pub trait Curve<const D: usize>: Copy + Default + Debug + Send + Sync + 'static {
    /// Where a cell stands on the curve.
    type Key: Copy + Ord + Default + Debug + Send + Sync + 'static;

    /// How many digits a key has.
    const DIGITS: u32;

    /// The key of the smallest cell that a place is in.
    fn key(place: Place<D>) -> Self::Key;

    /// A digit, counted from the coarsest; below 8.
    fn digit(key: Self::Key, index: u32) -> usize;

    /// Puts pairs in the order of their keys; equal keys stay as they stood. `scratch` is room that may be reused.
    fn sort(pairs: &mut Vec<(Self::Key, u32)>, scratch: &mut Vec<(Self::Key, u32)>);
}
