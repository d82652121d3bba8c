//! The number of tries: few by default, more in the modules `long`, many in `cargo xtask chaos`.

use std::time::{Duration, Instant};

use dunlin_system_tests::seed::Seed;

/// The seeds to try. `DUNLIN_CHAOS_SEED` gives a single seed. Otherwise there are `DUNLIN_CHAOS_TRIES` (or
/// `tries`) new seeds, and more until `DUNLIN_CHAOS_MINUTES` have passed.
pub fn seeds(tries: u64) -> impl Iterator<Item = u64> {
    let given = number("DUNLIN_CHAOS_SEED");
    let tries = given.map_or_else(|| number("DUNLIN_CHAOS_TRIES").unwrap_or(tries), |_| 1);
    let first = given.unwrap_or_else(Seed::fresh);
    let until = Instant::now() + Duration::from_secs(60 * number("DUNLIN_CHAOS_MINUTES").unwrap_or(0));
    (0..)
        .take_while(move |&at| at < tries || (given.is_none() && Instant::now() < until))
        .map(move |at| first + at)
}

/// The number of clients: `DUNLIN_CHAOS_CROWD`, or `clients`.
pub fn crowd(clients: u64) -> u64 {
    number("DUNLIN_CHAOS_CROWD").unwrap_or(clients)
}

/// The time limit of a test. The limit applies only in `cargo xtask chaos`, because other machines may stop
/// for a while.
pub fn at_most(time: Duration) -> Duration {
    let is_chaos = number("DUNLIN_CHAOS_TRIES").is_some();
    if is_chaos { time } else { Duration::MAX }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
