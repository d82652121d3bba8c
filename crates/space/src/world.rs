//! The box of space in which a world's entities move, and the grid of points that the curves use.
//!
//! Invariant: of two coordinates, the greater one never gets the lower grid coordinate, in spite of rounding. The grid
//! points from a box's lower corner to its upper corner therefore cover the whole box.
//!
//! Coordinates are `f32`, which has 24 bits of precision. Grid coordinates have 24 bits too. In a world of 1,000 km, a
//! position is exact to 6 cm.

use crate::curve::Cell;
use crate::shape::Aabb;

/// The coordinates of a point, in the world's unit.
pub type Point<const D: usize> = [f32; D];

/// The coordinates of a point in a world's grid, [`GRID_BITS`] bits for each axis.
pub type GridPoint<const D: usize> = [u32; D];

/// Number of bits of a grid coordinate.
pub const GRID_BITS: u32 = 24;

/// Number of levels of refinement of the curves. The upper bits of a point's grid coordinates, this many of each,
/// identify the smallest cell that contains the point.
pub const CELL_BITS: u32 = 21;

/// The box of space in which a world's entities move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorldBox<const D: usize> {
    min: Point<D>,
    max: Point<D>,
    /// Grid steps per unit.
    scale: Point<D>,
}

/// The reason why the box of a world is invalid.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// The number of dimensions is not 2 or 3.
    #[error("a world has 2 or 3 dimensions, not {dimensions}")]
    Dimensions {
        /// The requested number of dimensions.
        dimensions: usize,
    },
    /// An axis has no extent, or is too small for distinct coordinates.
    #[error(
        "axis {axis} goes from {min} to {max}: use two finite numbers, the lower one first, that are neither equal nor too close to each other"
    )]
    Axis {
        /// The axis, from 0.
        axis: usize,
        /// Lower end of the axis.
        min: f32,
        /// Upper end of the axis.
        max: f32,
    },
}

impl<const D: usize> WorldBox<D> {
    /// Creates the world between two corners, both included.
    pub fn new(min: Point<D>, max: Point<D>) -> Result<WorldBox<D>, WorldError> {
        if !(2..=3).contains(&D) {
            return Err(WorldError::Dimensions { dimensions: D });
        }
        let mut scale = [0.0; D];
        for axis in 0..D {
            scale[axis] = (1_u32 << GRID_BITS) as f32 / (max[axis] - min[axis]);
            let usable = scale[axis].is_normal() && scale[axis] > 0.0;
            if !(min[axis].is_finite() && max[axis].is_finite() && usable) {
                return Err(WorldError::Axis { axis, min: min[axis], max: max[axis] });
            }
        }
        Ok(WorldBox { min, max, scale })
    }

    /// Creates a cube or square from 0 to `edge` along each axis.
    pub fn cube(edge: f32) -> Result<WorldBox<D>, WorldError> {
        WorldBox::new([0.0; D], [edge; D])
    }

    /// Lower corner.
    pub fn min(&self) -> Point<D> {
        self.min
    }

    /// Upper corner.
    pub fn max(&self) -> Point<D> {
        self.max
    }

    /// Whether a point is in the world; `false` if a coordinate is NaN.
    #[inline(always)]
    pub fn contains(&self, at: &Point<D>) -> bool {
        (0..D).fold(true, |inside, axis| inside & (at[axis] >= self.min[axis]) & (at[axis] <= self.max[axis]))
    }

    /// Grid point of a position; positions outside the world are clamped.
    #[inline(always)]
    pub fn grid_point(&self, at: &Point<D>) -> GridPoint<D> {
        let last = (1 << GRID_BITS) - 1;
        // A conversion to u32 saturates. The compiler inlines a loop into the caller, but not a closure for each axis.
        let mut grid_point = [0; D];
        for axis in 0..D {
            grid_point[axis] = (((at[axis] - self.min[axis]) * self.scale[axis]) as u32).min(last);
        }
        grid_point
    }

    /// A box around all points of a cell, enlarged a little for rounding.
    pub fn box_of(&self, cell: &Cell<D>) -> Aabb<D> {
        let end = |axis: usize, steps: u32, sign: f32| {
            self.min[axis] + steps as f32 / self.scale[axis] + sign * self.rounding(axis)
        };
        Aabb {
            min: std::array::from_fn(|axis| end(axis, cell.anchor[axis], -1.0)),
            max: std::array::from_fn(|axis| end(axis, cell.anchor[axis] + cell.edge(), 1.0)),
        }
    }

    /// Largest difference along an axis between a point and its grid point, in units of the world. In a small world far
    /// from the origin, the steps of `f32` are longer than grid steps and increase this difference.
    pub(crate) fn rounding(&self, axis: usize) -> f32 {
        let far = self.min[axis].abs().max(self.max[axis].abs());
        (self.max[axis] - self.min[axis]) * 1e-6 + far * 2.0 * f32::EPSILON
    }

    /// Length of a smallest cell along an axis.
    pub fn cell_length(&self, axis: usize) -> f32 {
        (1 << (GRID_BITS - CELL_BITS)) as f32 / self.scale[axis]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn world_corners_map_to_the_ends_of_the_grid() {
        let world = WorldBox::new([-10.0, 5.0], [10.0, 6.0]).unwrap();
        assert_eq!(world.grid_point(&[-10.0, 5.0]), [0, 0]);
        assert_eq!(world.grid_point(&[10.0, 6.0]), [(1 << 24) - 1; 2]);
        assert_eq!(world.grid_point(&[-1e30, f32::INFINITY]), [0, (1 << 24) - 1]);
        assert!(
            world.contains(&[10.0, 5.0]) && !world.contains(&[f32::NAN, 5.5]) && !world.contains(&[0.0, 6.1])
        );
    }

    #[test]
    fn worlds_without_extent_are_refused() {
        for (min, max) in [(0.0, 0.0), (1.0, 0.0), (0.0, f32::INFINITY), (f32::NAN, 1.0), (-3e38, 3e38)] {
            let refused = WorldBox::new([0.0, min], [1.0, max]);
            assert!(matches!(refused, Err(WorldError::Axis { axis: 1, .. })), "{min} {max}");
        }
        assert_eq!(WorldBox::<4>::cube(1.0), Err(WorldError::Dimensions { dimensions: 4 }));
    }
}
