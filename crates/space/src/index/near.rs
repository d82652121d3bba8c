//! Collects the items nearest to a point, ordered by distance.

/// An item of a spatial index, and its squared distance from a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NearItem {
    /// Number of the item.
    pub item: u32,
    /// Square of the distance.
    pub distance_sq: f32,
}

/// The nearest items found so far. Each item is a 64-bit word: the bits of the squared distance, followed by the item's
/// number. Non-negative floats and their bits have the same order, so the words are ordered by distance, and for equal
/// distances by number.
#[derive(Debug, Clone)]
pub(crate) struct NearestItems {
    words: Vec<u64>,
    count: usize,
}

impl NearestItems {
    pub(crate) fn new(count: usize) -> NearestItems {
        NearestItems { words: Vec::with_capacity(count + 1), count }
    }

    /// Removes all items.
    pub(crate) fn clear(&mut self) {
        self.words.clear();
    }

    /// Maximum number of items that the search returns.
    pub(crate) fn most(&self) -> usize {
        self.count
    }

    /// Whether the maximum number of items was found.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.words.len() == self.count
    }

    /// Squared distance beyond which an item is ignored.
    #[inline(always)]
    pub(crate) fn reach(&self) -> f32 {
        match self.words.last() {
            Some(last) if self.words.len() == self.count => f32::from_bits((last >> 32) as u32),
            _ => f32::INFINITY,
        }
    }

    /// Adds an item if it is among the nearest items so far; another item may drop out.
    #[inline(always)]
    pub(crate) fn offer(&mut self, distance_sq: f32, item: u32) {
        // A NaN distance fails this comparison.
        if distance_sq <= self.reach() {
            self.insert(u64::from(distance_sq.to_bits()) << 32 | u64::from(item));
        }
    }

    #[inline]
    fn insert(&mut self, word: u64) {
        if self.words.len() == self.count {
            if self.words.last().is_none_or(|last| word >= *last) {
                return;
            }
            self.words.pop();
        }
        let mut at = self.words.len();
        self.words.push(word);
        while at > 0 && self.words[at - 1] > word {
            self.words[at] = self.words[at - 1];
            at -= 1;
        }
        self.words[at] = word;
    }

    /// Found items, the nearest first.
    pub(crate) fn found(&self) -> impl Iterator<Item = NearItem> + '_ {
        self.words
            .iter()
            .map(|word| NearItem { item: *word as u32, distance_sq: f32::from_bits((word >> 32) as u32) })
    }
}
