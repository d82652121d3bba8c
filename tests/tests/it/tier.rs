//! How much is tried: little in CI, much in `cargo xtask chaos`.

use std::time::{Duration, Instant};

use dunlin_system_tests::seed::Seed;

/// Seeds to try: `DUNLIN_CHAOS_SEED` alone when it is given, else fresh ones, as many as
/// `DUNLIN_CHAOS_TRIES` says (or `in_ci`), and on until `DUNLIN_CHAOS_MINUTES` are over.
pub fn seeds(in_ci: u64) -> impl Iterator<Item = u64> {
    let given = number("DUNLIN_CHAOS_SEED");
    let tries = given.map_or_else(|| number("DUNLIN_CHAOS_TRIES").unwrap_or(in_ci), |_| 1);
    let first = given.unwrap_or_else(Seed::fresh);
    let until = Instant::now() + Duration::from_secs(60 * number("DUNLIN_CHAOS_MINUTES").unwrap_or(0));
    (0..)
        .take_while(move |&at| at < tries || (given.is_none() && Instant::now() < until))
        .map(move |at| first + at)
}

/// How many clients: `DUNLIN_CHAOS_CROWD`, or `in_ci`.
pub fn crowd(in_ci: u64) -> u64 {
    number("DUNLIN_CHAOS_CROWD").unwrap_or(in_ci)
}

/// A time is only held to where somebody looks at it, in `cargo xtask chaos`; in CI, whose machines stand still, no more
/// is asked than that it ends.
pub fn at_most(time: Duration) -> Duration {
    let is_chaos = number("DUNLIN_CHAOS_TRIES").is_some();
    if is_chaos { time } else { time.max(Duration::from_secs(120)) }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
