//! Decides how often each test is repeated: a few times by default, more often in modules named `long`, and many times
//! in `cargo xtask chaos`.

use std::time::{Duration, Instant};

use dunlin_system_tests::seed::SeededRandom;

/// Returns the seeds with which a test runs. With `DUNLIN_CHAOS_SEED`, this seed is the only one. Otherwise, there are
/// `DUNLIN_CHAOS_TRIES` seeds; if this variable is not set, there are `tries` seeds. If `DUNLIN_CHAOS_MINUTES` minutes
/// have not passed by then, more seeds follow until they have.
pub fn seeds(tries: u64) -> impl Iterator<Item = u64> {
    let fixed_seed = number("DUNLIN_CHAOS_SEED");
    let tries = fixed_seed.map_or_else(|| number("DUNLIN_CHAOS_TRIES").unwrap_or(tries), |_| 1);
    let first = fixed_seed.unwrap_or_else(SeededRandom::fresh);
    let deadline = Instant::now() + Duration::from_secs(60 * number("DUNLIN_CHAOS_MINUTES").unwrap_or(0));
    (0..)
        .take_while(move |&at| at < tries || (fixed_seed.is_none() && Instant::now() < deadline))
        .map(move |at| first + at)
}

/// Returns the number of clients that a test starts: `DUNLIN_CHAOS_CROWD` if it is set, otherwise `clients`.
pub fn crowd(clients: u64) -> u64 {
    number("DUNLIN_CHAOS_CROWD").unwrap_or(clients)
}

/// Returns the time limit of a test: `time` in runs of `cargo xtask chaos`, and no limit in other runs. In other runs,
/// the machine may run further tests at the same time, and may therefore pause for a while.
pub fn at_most(time: Duration) -> Duration {
    let is_chaos = number("DUNLIN_CHAOS_TRIES").is_some();
    if is_chaos { time } else { Duration::MAX }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
