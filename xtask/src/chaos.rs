//! `chaos`: runs crash tests of the log on disk, the system tests with many seeds, and fault tests of a cluster's
//! control state. With the argument `control`, `topics` or `space`, the command runs only the fault tests of the
//! control state, of topics or of worlds. With `mutants` or `space-mutants`, the command checks that the fault tests
//! find known bugs.
//!
//! `cargo test` runs these tests too, with only a few seeds. A failing test prints its seed. `--seed` repeats the
//! random decisions of a run, but not the machine's timing, so a rare failure may need several runs.

pub mod control;
mod mutants;
pub mod space;
pub mod topics;

use anyhow::Result;

use crate::process::{self, cargo};

/// How many seeds are tried on each mutant (a deliberately faulty version of the code). At least one seed must find the
/// mutant's bug.
const MUTANT_SEEDS: u64 = 15;
/// How many seeds each test of handovers between regions runs.
const SPACE_SEEDS: u64 = 1_000;

/// The options of the chaos tests, such as how often they run.
#[derive(clap::Args)]
pub struct Options {
    /// Number of times to run each test that kills or stops processes
    #[arg(long, default_value_t = 100)]
    tries: u64,
    /// Minimum duration of each test that kills or stops processes, in minutes; the test repeats with new seeds until
    /// then
    #[arg(long, default_value_t = 0)]
    minutes: u64,
    /// Seed of one run, to repeat its random decisions
    #[arg(long)]
    seed: Option<u64>,
    /// Number of clients to disconnect at the same time, and of connections to open and close
    #[arg(long, default_value_t = 10_000)]
    crowd: u64,
    /// Number of runs of `control`, of `topics`, of `space`, or of each mutant [default: --tries; 15 for mutants;
    /// 1000 for space]
    #[arg(long)]
    seeds: Option<u64>,
    /// Try all seeds of `mutants`, and print how many detect each mutant (a deliberately faulty version of the code)
    #[arg(long)]
    count: bool,
    /// Text in the names of the mutants to try; for `mutants` [default: all]
    #[arg(long)]
    only: Option<String>,
    /// Part to run: `control`, `mutants`, `topics`, `space` or `space-mutants`; any other text selects tests by name
    /// [default: all tests, then `control`]
    filter: Option<String>,
}

/// Runs the selected tests. The tests are built with assertions and overflow checks.
pub fn run(options: &Options) -> Result<()> {
    match options.filter.as_deref() {
        Some("control") => run_control(options),
        Some("mutants") => {
            mutants::run(options.seeds.unwrap_or(MUTANT_SEEDS), options.count, options.only.as_deref())
        }
        Some("topics") => {
            let (first, seeds) = seed_range(options);
            topics::run(first, seeds)
        }
        Some("space") => space::run(options.seeds.unwrap_or(SPACE_SEEDS), options.seed),
        Some("space-mutants") => {
            space::mutants(options.seeds.unwrap_or(SPACE_SEEDS), options.only.as_deref())
        }
        Some(_) => run_tests(options),
        None => {
            run_tests(options)?;
            run_control(options)
        }
    }
}

fn run_control(options: &Options) -> Result<()> {
    let (first, seeds) = seed_range(options);
    control::run(first, seeds)
}

/// Returns the first seed to run, and the number of seeds.
fn seed_range(options: &Options) -> (u64, u64) {
    let (first, seeds) = options.seed.map_or((1, options.tries), |seed| (seed, 1));
    (first, options.seeds.unwrap_or(seeds))
}

fn run_tests(options: &Options) -> Result<()> {
    if options.filter.is_none() {
        crash_logs(options)?;
    }
    let mut command = cargo(&["test", "-p", "dunlin-system-tests", "--test", "it", "--"]);
    // Skips the modules named `long`, which contain the same tests with more repetitions. Here the options determine
    // the repetitions.
    command.args(["--nocapture", "--test-threads=1", "--skip=long::"]).args(&options.filter);
    command.env("DUNLIN_CHAOS_TRIES", options.tries.to_string());
    command.env("DUNLIN_CHAOS_MINUTES", options.minutes.to_string());
    command.env("DUNLIN_CHAOS_CROWD", options.crowd.to_string());
    if let Some(seed) = options.seed {
        command.env("DUNLIN_CHAOS_SEED", seed.to_string());
    }
    process::run(&mut command)
}

/// Tests the log on disk with a simulated disk that loses writes, tears writes and flips bits. Each run has its own
/// seed.
fn crash_logs(options: &Options) -> Result<()> {
    let mut command = cargo(&["test", "-p", "dunlin-journal", "--test", "it", "crash"]);
    match options.seed {
        Some(seed) => command.env("DUNLIN_JOURNAL_SEED", seed.to_string()),
        None => command.env("DUNLIN_JOURNAL_SEEDS", (options.tries * 500).to_string()),
    };
    process::run(&mut command)
}
