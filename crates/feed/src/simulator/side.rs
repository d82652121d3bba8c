//! One side of a simulated order book. A ring buffer has the size at each key. Keys grow from the worst price to the
//! best.
//!
//! Invariant: unless the side is empty, [`SimulatedSide::worst`] and [`SimulatedSide::best`] are the keys of two
//! levels, between which all other levels are. The caller ensures that the distance between these two keys is less than
//! the length of the ring buffer.

/// One side of a simulated order book.
#[derive(Debug)]
pub(super) struct SimulatedSide {
    /// The size at each key; 0 means that there is no level. The length of the buffer is a power of two.
    sizes: Box<[u32]>,
    best: i64,
    worst: i64,
    levels: usize,
}

impl SimulatedSide {
    /// Creates an empty side. The caller must ensure that the distance between any two keys with levels is less than
    /// `span`.
    pub(super) fn new(span: usize) -> SimulatedSide {
        SimulatedSide { sizes: vec![0; span.next_power_of_two()].into(), best: 0, worst: 0, levels: 0 }
    }

    pub(super) fn levels(&self) -> usize {
        self.levels
    }

    /// Key of the best level.
    #[inline(always)]
    pub(super) fn best(&self) -> Option<i64> {
        (self.levels > 0).then_some(self.best)
    }

    /// Key of the worst level.
    #[inline(always)]
    pub(super) fn worst(&self) -> Option<i64> {
        (self.levels > 0).then_some(self.worst)
    }

    #[inline(always)]
    pub(super) fn set(&mut self, key: i64, size: u32) {
        debug_assert!(size > 0, "the size must be above zero");
        let at = self.at(key);
        if self.sizes[at] == 0 {
            (self.best, self.worst) =
                if self.levels == 0 { (key, key) } else { (self.best.max(key), self.worst.min(key)) };
            self.levels += 1;
        }
        self.sizes[at] = size;
    }

    /// Removes a level, which must exist.
    #[inline(always)]
    pub(super) fn remove(&mut self, key: i64) {
        let at = self.at(key);
        debug_assert!(self.sizes[at] > 0, "there is no level to remove");
        self.sizes[at] = 0;
        self.levels -= 1;
        if self.levels == 0 {
            return;
        }
        if key == self.best {
            self.best = self.next_worse(key);
        } else if key == self.worst {
            let mut key = key + 1;
            while self.sizes[self.at(key)] == 0 {
                key += 1;
            }
            self.worst = key;
        }
    }

    /// Returns the key of the best level at `key` or below. If all levels are above `key`, returns the key of the worst
    /// level.
    #[inline(always)]
    pub(super) fn near(&self, key: i64) -> Option<i64> {
        match key {
            _ if self.levels == 0 => None,
            key if key >= self.best => Some(self.best),
            key if key <= self.worst => Some(self.worst),
            key => Some(self.next_worse(key + 1)),
        }
    }

    pub(super) fn clear(&mut self) {
        self.sizes.fill(0);
        self.levels = 0;
    }

    /// The keys and sizes of all levels, from the best to the worst.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, u32)> + '_ {
        let keys = if self.levels == 0 { 0..0 } else { self.worst..self.best + 1 };
        keys.rev().map(|key| (key, self.sizes[self.at(key)])).filter(|(_, size)| *size > 0)
    }

    /// Returns the key of the best level below `key`. There must be such a level.
    #[inline(always)]
    fn next_worse(&self, key: i64) -> i64 {
        let mut key = key - 1;
        while self.sizes[self.at(key)] == 0 {
            key -= 1;
        }
        key
    }

    #[inline(always)]
    fn at(&self, key: i64) -> usize {
        key as usize & (self.sizes.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::SimulatedSide;

    #[test]
    fn side_of_a_simulated_book_tracks_its_best_and_worst_price() {
        let mut side = SimulatedSide::new(10);
        for key in [-3, 2, 0] {
            side.set(key, 7);
        }
        assert_eq!((side.best(), side.worst(), side.levels()), (Some(2), Some(-3), 3));
        assert_eq!(
            [side.near(9), side.near(1), side.near(-1), side.near(-9)].map(Option::unwrap),
            [2, 0, -3, -3]
        );
        side.remove(2);
        assert_eq!(side.best(), Some(0));
        side.remove(-3);
        assert_eq!(side.iter().collect::<Vec<_>>(), [(0, 7)]);
        side.remove(0);
        assert_eq!((side.best(), side.near(0), side.iter().count()), (None, None, 0));
        side.set(50, 1);
        assert_eq!((side.best(), side.worst()), (Some(50), Some(50)));
    }
}
