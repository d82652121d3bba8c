//! The Morton order of cells: a cell's key consists of the interleaved bits of the cell's coordinates, the highest bits
//! first.

use super::Curve;
use crate::world::{CELL_BITS, GRID_BITS, GridPoint};

/// The Morton curve (Z-order), in two or three dimensions.
/// Bit `i` of a key's digit is set if the cell is in the upper half of its parent along axis `i`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MortonCurve;

impl MortonCurve {
    /// Number of keys in a world with this many dimensions. All keys are lower than this number.
    pub const fn end(dimensions: usize) -> u64 {
        1 << (CELL_BITS as usize * dimensions)
    }

    /// Grid point at the lower corner of the smallest cell whose key is `key`.
    pub fn grid_point<const D: usize>(key: u64) -> GridPoint<D> {
        std::array::from_fn(|axis| gather::<D>(key >> axis) << (GRID_BITS - CELL_BITS))
    }
}

impl<const D: usize> Curve<D> for MortonCurve {
    type Key = u64;
    const DIGITS: u32 = CELL_BITS;

    #[inline(always)]
    fn key(point: GridPoint<D>) -> u64 {
        (0..D).fold(0, |key, axis| key | (spread_bits::<D>(point[axis] >> (GRID_BITS - CELL_BITS)) << axis))
    }

    #[inline(always)]
    fn digit(key: u64, index: u32) -> usize {
        (key >> ((CELL_BITS - 1 - index) as usize * D)) as usize & ((1 << D) - 1)
    }

    fn sort(pairs: &mut Vec<(u64, u32)>, scratch: &mut Vec<(u64, u32)>) {
        radix_sort(pairs, scratch);
    }
}

/// Puts `D - 1` zeros between the bits of a number below 2^21.
#[inline(always)]
fn spread_bits<const D: usize>(number: u32) -> u64 {
    let mut bits = u64::from(number);
    if D == 2 {
        bits = (bits | (bits << 16)) & 0x0000_ffff_0000_ffff;
        bits = (bits | (bits << 8)) & 0x00ff_00ff_00ff_00ff;
        bits = (bits | (bits << 4)) & 0x0f0f_0f0f_0f0f_0f0f;
        bits = (bits | (bits << 2)) & 0x3333_3333_3333_3333;
        (bits | (bits << 1)) & 0x5555_5555_5555_5555
    } else {
        bits = (bits | (bits << 32)) & 0x001f_0000_0000_ffff;
        bits = (bits | (bits << 16)) & 0x001f_0000_ff00_00ff;
        bits = (bits | (bits << 8)) & 0x100f_00f0_0f00_f00f;
        bits = (bits | (bits << 4)) & 0x10c3_0c30_c30c_30c3;
        (bits | (bits << 2)) & 0x1249_2492_4924_9249
    }
}

/// Takes every `D`-th bit: the inverse of `spread_bits`.
fn gather<const D: usize>(key: u64) -> u32 {
    (0..CELL_BITS).fold(0, |number, bit| number | (((key >> (bit as usize * D)) & 1) as u32) << bit)
}

const RADIX_BITS: u32 = 11;

/// Radix sort in passes of 11 bits, least significant digit first. Skips a pass in which all keys have the
/// same digit.
fn radix_sort(pairs: &mut Vec<(u64, u32)>, scratch: &mut Vec<(u64, u32)>) {
    if pairs.len() < 1_024 {
        return pairs.sort_by_key(|pair| pair.0);
    }
    scratch.resize(pairs.len(), (0, 0));
    for shift in (0..u64::BITS).step_by(RADIX_BITS as usize) {
        let digit = |key: u64| (key >> shift) as usize & ((1 << RADIX_BITS) - 1);
        let mut ends = [0_u32; 1 << RADIX_BITS];
        pairs.iter().for_each(|pair| ends[digit(pair.0)] += 1);
        if ends[digit(pairs[0].0)] as usize == pairs.len() {
            continue;
        }
        let mut start = 0;
        for count in &mut ends {
            start += std::mem::replace(count, start);
        }
        for pair in pairs.iter() {
            let next = &mut ends[digit(pair.0)];
            scratch[*next as usize] = *pair;
            *next += 1;
        }
        std::mem::swap(pairs, scratch);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn morton_key_maps_back_to_its_cell(point in prop::array::uniform3(0_u32..1 << 24)) {
            let cell = point.map(|along| along >> 3 << 3);
            prop_assert_eq!(MortonCurve::grid_point::<3>(<MortonCurve as Curve<3>>::key(point)), cell);
            let flat = [point[0], point[1]];
            prop_assert_eq!(MortonCurve::grid_point::<2>(<MortonCurve as Curve<2>>::key(flat)), [cell[0], cell[1]]);
        }

        #[test]
        fn morton_key_selects_ever_smaller_cells_digit_by_digit(point in prop::array::uniform3(0_u32..1 << 24)) {
            let key = <MortonCurve as Curve<3>>::key(point);
            for index in 0..CELL_BITS {
                let bit = GRID_BITS - 1 - index;
                let child = (0..3).map(|axis| ((point[axis] >> bit & 1) as usize) << axis).sum::<usize>();
                prop_assert_eq!(<MortonCurve as Curve<3>>::digit(key, index), child);
            }
        }

        #[test]
        fn radix_sort_equals_a_comparison_sort(keys in prop::collection::vec(any::<u64>(), 1_024..3_000), mask in any::<u64>()) {
            let mut pairs: Vec<(u64, u32)> = keys.iter().map(|key| key & mask).zip(0..).collect();
            let mut sorted = pairs.clone();
            sorted.sort();
            radix_sort(&mut pairs, &mut Vec::new());
            prop_assert_eq!(pairs, sorted);
        }
    }
}
