//! The tetrahedral Morton order of Burstedde and Holke (2016) with Bey's refinement. In two dimensions, its cells are
//! triangles.
//!
//! ```text
//!   65 … 63 62 … 60 59 … 57        2 … 0       (in two dimensions: the root type in bit 42, then 2 bits a level)
//!  +-------+-------+-------+ … … +-------+
//!  | root  | level | level |     | level |     a child's number among its siblings: by cube, then by type
//!  | type  |   1   |   2   |     |  21   |
//!  +-------+-------+-------+ … … +-------+
//! ```
//! The world's cube is cut into two triangles or six tetrahedra, the roots. The curve runs through one root
//! after another.

use super::Curve;
use super::simplex::{self, child_numbers};
use crate::world::{CELL_BITS, GRID_BITS, GridPoint};

/// The tetrahedral Morton curve, through tetrahedra in three dimensions or triangles in two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TetrahedralCurve;

const SOLID: [[[u8; 6]; 8]; 6] = child_numbers(3);
const FLAT: [[[u8; 6]; 8]; 6] = child_numbers(2);

impl<const D: usize> Curve<D> for TetrahedralCurve {
    type Key = u128;
    const DIGITS: u32 = CELL_BITS + 1;

    fn key(point: GridPoint<D>) -> u128 {
        let numbers = if D == 2 { &FLAT } else { &SOLID };
        let mut parent = simplex::kind(point);
        let mut key = u128::from(parent);
        for bit in (GRID_BITS - CELL_BITS..GRID_BITS).rev() {
            let cube = (0..D).fold(0, |cube, axis| cube | ((point[axis] >> bit & 1) as usize) << axis);
            let kind = simplex::kind(point.map(|along| along & ((1 << bit) - 1)));
            key = key << D | u128::from(numbers[parent as usize][cube][kind as usize]);
            parent = kind;
        }
        key
    }

    #[inline]
    fn digit(key: u128, index: u32) -> usize {
        let digit = (key >> ((CELL_BITS - index) as usize * D)) as usize;
        if index == 0 { digit } else { digit & ((1 << D) - 1) }
    }

    fn sort(pairs: &mut Vec<(u128, u32)>, _: &mut Vec<(u128, u32)>) {
        pairs.sort_by_key(|pair| pair.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Simplex;
    use super::*;

    proptest! {
        /// Counts two things for pairs of grid points, from the coarsest level on: the equal digits at the start of the
        /// points' keys, and the simplices that contain both points. Checks that the two counts are equal.
        #[test]
        fn keys_of_3d_points_share_a_digit_for_each_common_tetrahedron(
            a in prop::array::uniform3(0_u32..1 << 24), near in prop::array::uniform3(0_u32..1 << 12), shift in 0_u32..13,
        ) {
            let b = std::array::from_fn(|axis| a[axis] ^ near[axis] << shift);
            let (of_a, of_b) = (<TetrahedralCurve as Curve<3>>::key(a), <TetrahedralCurve as Curve<3>>::key(b));
            prop_assert!(of_a < 6 << 63);
            let digit = <TetrahedralCurve as Curve<3>>::digit;
            let same = |index| digit(of_a, index) == digit(of_b, index);
            let digits = (0..=21).take_while(|index| same(*index)).count();
            let simplices = (0..=21).take_while(|level| Simplex::of(a, *level) == Simplex::of(b, *level)).count();
            prop_assert_eq!(digits, simplices);
        }

        #[test]
        fn keys_of_points_in_the_same_triangle_share_digits(
            a in prop::array::uniform2(0_u32..1 << 24), near in prop::array::uniform2(0_u32..1 << 12), shift in 0_u32..13,
        ) {
            let b = std::array::from_fn(|axis| a[axis] ^ near[axis] << shift);
            let (of_a, of_b) = (<TetrahedralCurve as Curve<2>>::key(a), <TetrahedralCurve as Curve<2>>::key(b));
            prop_assert!(of_a < 2 << 42);
            let digit = <TetrahedralCurve as Curve<2>>::digit;
            let same = |index| digit(of_a, index) == digit(of_b, index);
            let digits = (0..=21).take_while(|index| same(*index)).count();
            let simplices = (0..=21).take_while(|level| Simplex::of(a, *level) == Simplex::of(b, *level)).count();
            prop_assert_eq!(digits, simplices);
        }
    }
}
