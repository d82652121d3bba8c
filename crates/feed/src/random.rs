//! Generates pseudorandom numbers that are the same on every machine and in every version.
//!
//! The generator is xoshiro256++ by Blackman and Vigna (public domain, prng.di.unimi.it), seeded with SplitMix64 as the
//! authors advise. The generator is implemented here, because a later version of an external crate could generate other
//! numbers. Other numbers would invalidate the recorded hashes of simulated feeds.

/// A stream of pseudorandom numbers, determined by its seed.
#[derive(Debug, Clone)]
pub(crate) struct Random([u64; 4]);

impl Random {
    /// Creates stream number `index` of a seed. The streams of a seed are independent of one another.
    pub(crate) fn new(seed: u64, index: u64) -> Random {
        let mut state = split_mix(&mut { seed }) ^ split_mix(&mut { !index });
        Random(std::array::from_fn(|_| split_mix(&mut state)))
    }

    /// Returns the next 64 random bits.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let drawn = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        drawn
    }
}

/// Maps a random number to a number below `limit`, without a division. The random number is `bits_drawn`, which
/// consists of `bits` evenly distributed bits. The bias is below `limit` ÷ 2^`bits`.
#[inline(always)]
pub(crate) fn below(limit: u64, bits_drawn: u64, bits: u32) -> u64 {
    (bits_drawn * limit) >> bits
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_mix_generator_yields_the_published_numbers() {
        let mut state = 1_234_567;
        let drawn: [u64; 3] = std::array::from_fn(|_| split_mix(&mut state));
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn xoshiro_generator_yields_the_published_numbers() {
        let mut random = Random([1, 2, 3, 4]);
        let drawn: [u64; 4] = std::array::from_fn(|_| random.next());
        assert_eq!(drawn, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn random_numbers_of_adjacent_seeds_and_streams_differ() {
        let first = |seed, index| Random::new(seed, index).next();
        let mut drawn: Vec<u64> = (0..10).flat_map(|seed| (0..10).map(move |at| first(seed, at))).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 100);
    }

    #[test]
    fn bounded_random_number_is_below_its_bound() {
        assert_eq!((below(5, 0, 16), below(5, 0xffff, 16)), (0, 4));
        assert_eq!(below(1, 0xffff, 16), 0);
    }
}
