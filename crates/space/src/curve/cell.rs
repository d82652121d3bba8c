//! Cells of the Morton order: squares in two dimensions, cubes in three.

use super::{Curve, MortonCurve};
use crate::world::{CELL_BITS, GRID_BITS, GridPoint};

/// A cell of the Morton curve: a square or cube whose size depends on its level of refinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell<const D: usize> {
    /// Lower corner, in grid coordinates.
    pub anchor: GridPoint<D>,
    /// How many times the world is halved along each axis to reach this cell; at most [`CELL_BITS`].
    pub level: u32,
}

impl<const D: usize> Cell<D> {
    /// Returns the cell of the given level that contains `point`.
    pub fn of(point: GridPoint<D>, level: u32) -> Cell<D> {
        let within = (1_u32 << (GRID_BITS - level)) - 1;
        Cell { anchor: point.map(|along| along & !within), level }
    }

    /// Length of the cell's edges, in grid steps.
    pub fn edge(&self) -> u32 {
        1 << (GRID_BITS - self.level)
    }

    /// The first key in this cell, and the number of keys in the cell.
    pub fn keys(&self) -> (u64, u64) {
        let count = 1 << ((CELL_BITS - self.level) as usize * D);
        (<MortonCurve as Curve<D>>::key(self.anchor), count)
    }

    /// This cell and its neighbours of the same level. Neighbours outside the world are left out.
    pub fn around(&self) -> impl Iterator<Item = Cell<D>> {
        let (anchor, level, edge) = (self.anchor, self.level, i64::from(self.edge()));
        (0..3_usize.pow(D as u32)).filter_map(move |which| {
            let mut moved = anchor;
            for (axis, along) in moved.iter_mut().enumerate() {
                let step = (which / 3_usize.pow(axis as u32) % 3) as i64 - 1;
                *along =
                    u32::try_from(i64::from(*along) + step * edge).ok().filter(|at| at >> GRID_BITS == 0)?;
            }
            Some(Cell { anchor: moved, level })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_at_the_world_border_has_fewer_neighbour_cells() {
        assert_eq!(Cell::<2>::of([0, 0], 3).around().count(), 4);
        assert_eq!(Cell::<3>::of([1 << 23, 1 << 23, 1 << 23], 3).around().count(), 27);
        assert_eq!(Cell::<3>::of([(1 << 24) - 1; 3], 21).around().count(), 8);
        assert_eq!(Cell::<3>::of([5; 3], 0).around().count(), 1);
    }

    #[test]
    fn key_range_of_a_cell_ends_with_the_key_of_its_last_point() {
        let cell = Cell::<3>::of([1 << 22, 5 << 20, 3], 5);
        let (first, count) = cell.keys();
        let last = cell.anchor.map(|along| along + cell.edge() - 1);
        assert_eq!(<MortonCurve as Curve<3>>::key(last), first + count - 1);
    }
}
