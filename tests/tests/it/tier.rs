//! Decides how often tests are repeated: a few times by default, more often in the modules `long`, and many times in
//! `cargo xtask chaos`.

use std::time::{Duration, Instant};

use dunlin_system_tests::seed::SeededRandom;

/// Returns the seeds to try. `DUNLIN_CHAOS_SEED` sets a single seed. Otherwise there are `DUNLIN_CHAOS_TRIES` (or
/// `tries`) new seeds, and more until `DUNLIN_CHAOS_MINUTES` have passed.
pub fn seeds(tries: u64) -> impl Iterator<Item = u64> {
    let fixed_seed = number("DUNLIN_CHAOS_SEED");
    let tries = fixed_seed.map_or_else(|| number("DUNLIN_CHAOS_TRIES").unwrap_or(tries), |_| 1);
    let first = fixed_seed.unwrap_or_else(SeededRandom::fresh);
    let deadline = Instant::now() + Duration::from_secs(60 * number("DUNLIN_CHAOS_MINUTES").unwrap_or(0));
    (0..)
        .take_while(move |&at| at < tries || (fixed_seed.is_none() && Instant::now() < deadline))
        .map(move |at| first + at)
}

/// Returns the number of clients: `DUNLIN_CHAOS_CROWD`, or `clients` if that is not set.
pub fn crowd(clients: u64) -> u64 {
    number("DUNLIN_CHAOS_CROWD").unwrap_or(clients)
}

/// The time limit of a test. The limit applies only in `cargo xtask chaos`, because machines that run other tests may
/// pause for a while.
pub fn at_most(time: Duration) -> Duration {
    let is_chaos = number("DUNLIN_CHAOS_TRIES").is_some();
    if is_chaos { time } else { Duration::MAX }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
