//! Takes rows to where they are next, and notes what has to be known of it.

use super::crossing::is_beyond;
use super::home::Home;
use crate::behaviour::{Motion, Own};
use crate::store::Rows;
use crate::world::{Point, World};

/// Rows that turn are listed where they are no more than one in so many; else all velocities are told.
const LISTED_PART: usize = 8;

/// What a tick did to the rows; rows are listed in the order in which they were moved.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Rows that are in another's stretch.
    pub(super) crossed: Vec<u32>,
    /// The first of those whose velocity changed.
    turned: Vec<u32>,
    turned_count: usize,
    /// Rows that were to be moved to where there is no place.
    pub(super) misplaced: Vec<u32>,
    /// Whether anything moved.
    pub(super) moved: bool,
}

impl Noted {
    pub(super) fn clear(&mut self) {
        [&mut self.crossed, &mut self.turned, &mut self.misplaced].into_iter().for_each(Vec::clear);
        (self.turned_count, self.moved) = (0, false);
    }

    /// Whatever the order in which rows were moved, they are told of in their own.
    pub(super) fn sort(&mut self) {
        [&mut self.crossed, &mut self.turned, &mut self.misplaced]
            .into_iter()
            .for_each(|rows| rows.sort_unstable());
    }

    /// All rows that turned, where they are few enough.
    pub(super) fn turned(&self) -> Option<&[u32]> {
        (self.turned_count == self.turned.len()).then_some(&self.turned[..])
    }

    pub(super) fn bytes(&self) -> usize {
        (self.crossed.capacity() + self.turned.capacity() + self.misplaced.capacity()) * 4
    }
}

/// See the module.
pub(super) struct Mover<'a, const D: usize> {
    pub(super) rows: Rows<'a, D>,
    world: World<D>,
    stretch: (u64, u64),
    home: &'a Home<D>,
    noted: &'a mut Noted,
    listed_max: usize,
}

impl<'a, const D: usize> Mover<'a, D> {
    pub(super) fn new(
        rows: Rows<'a, D>,
        (world, stretch): (World<D>, (u64, u64)),
        home: &'a Home<D>,
        noted: &'a mut Noted,
    ) -> Mover<'a, D> {
        let listed_max = rows.ids.len() / LISTED_PART;
        Mover { rows, world, stretch, home, noted, listed_max }
    }

    #[inline(always)]
    pub(super) fn own(&self, row: usize) -> Own<D> {
        let Rows { ids, kinds, position, velocity, .. } = &self.rows;
        Own {
            id: ids[row],
            kind: kinds[row],
            position: std::array::from_fn(|axis| position[axis][row]),
            velocity: std::array::from_fn(|axis| velocity[axis][row]),
        }
    }

    /// A row goes where its behaviour says.
    #[inline(always)]
    pub(super) fn put(&mut self, row: usize, own: &Own<D>, motion: &Motion<D>) {
        if !is_finite(motion) {
            self.noted.misplaced.push(row as u32);
            return;
        }
        let (low, high) = (self.world.min(), self.world.max());
        let inside: Point<D> =
            std::array::from_fn(|axis| motion.position[axis].max(low[axis]).min(high[axis]));
        let turned = differ(&motion.velocity, &own.velocity);
        self.noted.moved |= turned || differ(&inside, &own.position);
        if turned {
            self.noted.turned_count += 1;
            if self.noted.turned_count <= self.listed_max {
                self.noted.turned.push(row as u32);
            }
        }
        for axis in 0..D {
            self.rows.position[axis][row] = inside[axis];
            self.rows.velocity[axis][row] = motion.velocity[axis];
        }
        if !self.home.holds(&inside) && is_beyond(&self.world, &inside, self.stretch) {
            self.noted.crossed.push(row as u32);
        }
    }
}

/// Whether any of their bits do.
#[inline(always)]
fn differ<const D: usize>(a: &Point<D>, b: &Point<D>) -> bool {
    (0..D).fold(0, |bits, axis| bits | (a[axis].to_bits() ^ b[axis].to_bits())) != 0
}

#[inline(always)]
fn is_finite<const D: usize>(motion: &Motion<D>) -> bool {
    (0..D).fold(true, |finite, axis| {
        finite & motion.position[axis].is_finite() & motion.velocity[axis].is_finite()
    })
}
