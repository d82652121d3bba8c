//! Topic names for the measurements of topic registries. The names also exist in random order, for look-ups.
//!
//! The names to look up are copies of the registered strings, so each look-up has to compare the bytes of two strings.
//! The random order causes as many cache misses as in a real registry.

use std::hint::black_box;

use anyhow::{Result, ensure};

use crate::clock::monotonic_ns;
use crate::point::RunSample;

/// The distinct topic names of a measurement.
#[derive(Debug)]
pub struct TopicNames(Vec<String>);

impl TopicNames {
    /// Creates `count` distinct names.
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|nth| format!("bench.topic.{nth:06}")).collect())
    }

    /// Iterates over the names in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns `count` names, each drawn at random from all names.
    pub fn random(&self, count: usize, rng: &mut RandomNumbers) -> Vec<String> {
        (0..count).map(|_| self.0[rng.below(self.0.len())].clone()).collect()
    }
}

/// The number of passes. The benchmark document of SPOT (another system) measures one pass of 10,000 look-ups. A single
/// pass takes less than a millisecond, so an interrupt could change its time by a tenth. Therefore, this benchmark
/// makes several passes, each with other names.
const PASSES: u64 = 10;

/// Measures a registry of `topics` names: first how long `create` takes to fill it, and then how long `lookups`
/// look-ups with `has` take, in random order. Returns the figures of SPOT's benchmark document: the times and the rates
/// of the creation and of the look-ups.
pub fn time_registry<R>(
    topics: usize,
    lookups: usize,
    create: impl Fn(&TopicNames) -> Result<R>,
    has: impl Fn(&R, &str) -> bool,
) -> Result<RunSample> {
    let names = TopicNames::new(topics);
    let start_ns = monotonic_ns();
    let registry = create(&names)?;
    let created_ns = monotonic_ns() - start_ns;
    let mut rng = RandomNumbers::default();
    let mut lookup_total_ns = 0;
    for _ in 0..PASSES {
        let probes = names.random(lookups, &mut rng);
        let start_ns = monotonic_ns();
        let found = probes.iter().filter(|name| has(&registry, black_box(name))).count();
        lookup_total_ns += monotonic_ns() - start_ns;
        ensure!(found == lookups, "only {found} of {lookups} names were found");
    }
    let per_s = |count: u64, ns: u64| count as f64 * 1e9 / ns.max(1) as f64;
    let all_lookups = lookups as u64 * PASSES;
    Ok(RunSample::new()
        .with("create_ns", created_ns as f64)
        .with("creates_per_s", per_s(topics as u64, created_ns))
        .with("elapsed_ns", (lookup_total_ns / PASSES) as f64)
        .with("lookups_per_s", per_s(all_lookups, lookup_total_ns))
        .with("lookup_ns", lookup_total_ns as f64 / all_lookups as f64))
}

/// A generator of pseudo-random numbers (xorshift). Its sequence is the same on every machine.
#[derive(Debug)]
pub struct RandomNumbers(u64);

impl Default for RandomNumbers {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl RandomNumbers {
    /// Creates a generator whose sequence depends on `number`.
    pub fn of(number: u64) -> Self {
        Self(Self::default().0 ^ (number + 1).wrapping_mul(0xd129_0d3c_52d6_8d4b))
    }

    /// Returns a random number from 0 to `bound - 1`. `bound` must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_names_that_cover_all_topics() {
        let names = TopicNames::new(100);
        let probes = names.random(10_000, &mut RandomNumbers::default());
        assert_eq!(probes, names.random(10_000, &mut RandomNumbers::default()));
        let distinct: std::collections::HashSet<_> = probes.iter().collect();
        assert_eq!(distinct.len(), 100);
    }
}
