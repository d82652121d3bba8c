//! How much is tried: little by default, more in the modules `long`, much in `cargo xtask chaos`.

use std::time::{Duration, Instant};

use dunlin_system_tests::seed::Seed;

/// Seeds to try: `DUNLIN_CHAOS_SEED` alone when it is given, else fresh ones, as many as
/// `DUNLIN_CHAOS_TRIES` says (or `tries`), and on until `DUNLIN_CHAOS_MINUTES` are over.
pub fn seeds(tries: u64) -> impl Iterator<Item = u64> {
    let given = number("DUNLIN_CHAOS_SEED");
    let tries = given.map_or_else(|| number("DUNLIN_CHAOS_TRIES").unwrap_or(tries), |_| 1);
    let first = given.unwrap_or_else(Seed::fresh);
    let until = Instant::now() + Duration::from_secs(60 * number("DUNLIN_CHAOS_MINUTES").unwrap_or(0));
    (0..)
        .take_while(move |&at| at < tries || (given.is_none() && Instant::now() < until))
        .map(move |at| first + at)
}

/// How many clients: `DUNLIN_CHAOS_CROWD`, or `clients`.
pub fn crowd(clients: u64) -> u64 {
    number("DUNLIN_CHAOS_CROWD").unwrap_or(clients)
}

/// The test fails when this time is passed, in `cargo xtask chaos` alone: other machines stand still for a while.
pub fn at_most(time: Duration) -> Duration {
    let is_chaos = number("DUNLIN_CHAOS_TRIES").is_some();
    if is_chaos { time } else { Duration::MAX }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
