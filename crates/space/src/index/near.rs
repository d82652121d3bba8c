//! The nearest few.

/// An item and how far it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Near {
    /// Its number.
    pub item: u32,
    /// The square of its distance.
    pub distance_sq: f32,
}

/// The nearest items found so far. Of floats that are not negative the bits compare as the numbers do, so that one comparison
/// of a word says which is nearer and, where it is equal, which has the lower number.
#[derive(Debug, Clone)]
pub(crate) struct Nearest {
    words: Vec<u64>,
    count: usize,
}

impl Nearest {
    pub(crate) fn new(count: usize) -> Nearest {
        Nearest { words: Vec::with_capacity(count + 1), count }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.words.clear();
    }

    /// How many there can be.
    pub(crate) fn most(&self) -> usize {
        self.count
    }

    /// Whether there are as many as there can be.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.words.len() == self.count
    }

    /// Nothing further away than this is of interest.
    #[inline(always)]
    pub(crate) fn reach(&self) -> f32 {
        match self.words.last() {
            Some(last) if self.words.len() == self.count => f32::from_bits((last >> 32) as u32),
            _ => f32::INFINITY,
        }
    }

    /// Looks at one more.
    #[inline(always)]
    pub(crate) fn offer(&mut self, distance_sq: f32, item: u32) {
        // A distance that is not a number is above none.
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

    /// What was found, the nearest first.
    pub(crate) fn found(&self) -> impl Iterator<Item = Near> + '_ {
        self.words
            .iter()
            .map(|word| Near { item: *word as u32, distance_sq: f32::from_bits((word >> 32) as u32) })
    }
}
