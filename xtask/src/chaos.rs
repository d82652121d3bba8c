//! `chaos`: the crashes of the log on disk, by the thousand; then the whole-system tests, many tries of each; then the
//! control state of several nodes. `chaos control` runs those alone, `chaos topics` is about topics of a cluster, `chaos mutants`
//! shows that both find bugs. `chaos space` and `chaos space-mutants` do the same for hand-overs between regions.
//!
//! `cargo test` runs the same tests with few tries. A failing try prints its seed; `--seed` makes its decisions
//! again (what the machine does in between is another matter, so a rare failure may take several runs).

pub mod control;
mod mutants;
pub mod space;
pub mod topics;

use anyhow::Result;

use crate::process::{self, cargo};

/// So many have to find a mutant.
const MUTANT_SEEDS: u64 = 15;
/// Of hand-overs, of each kind.
const SPACE_SEEDS: u64 = 1_000;

/// How much to try.
#[derive(clap::Args)]
pub struct Options {
    /// Number of tries of each test that kills or stops something
    #[arg(long, default_value_t = 100)]
    tries: u64,
    /// Minimum duration of each of these tests, in minutes; new seeds are tried until then
    #[arg(long, default_value_t = 0)]
    minutes: u64,
    /// Seed of a single try, to repeat its decisions
    #[arg(long)]
    seed: Option<u64>,
    /// Number of clients to disconnect at the same time, and of connections to open and close
    #[arg(long, default_value_t = 10_000)]
    crowd: u64,
    /// Number of runs of `control`, of `topics`, of `space`, or of each mutant [default: --tries; 15 for mutants;
    /// 1000 for space]
    #[arg(long)]
    seeds: Option<u64>,
    /// With `mutants`: try all seeds and print how many find each mutant
    #[arg(long)]
    count: bool,
    /// With `mutants`: text in the names of the mutants to try [default: all]
    #[arg(long)]
    only: Option<String>,
    /// Part to run: `control`, `mutants`, `topics`, `space` or `space-mutants`; or text in the names of tests
    /// [default: tests, then control]
    filter: Option<String>,
}

/// Runs them in the configuration of all tests: assertions and overflow checks are on in what is tried.
pub fn run(options: &Options) -> Result<()> {
    match options.filter.as_deref() {
        Some("control") => run_control(options),
        Some("mutants") => {
            mutants::run(options.seeds.unwrap_or(MUTANT_SEEDS), options.count, options.only.as_deref())
        }
        Some("topics") => {
            let (first, seeds) = which(options);
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
    let (first, seeds) = which(options);
    control::run(first, seeds)
}

/// The first seed, and how many.
fn which(options: &Options) -> (u64, u64) {
    let (first, seeds) = options.seed.map_or((1, options.tries), |seed| (seed, 1));
    (first, options.seeds.unwrap_or(seeds))
}

fn run_tests(options: &Options) -> Result<()> {
    if options.filter.is_none() {
        crash_logs(options)?;
    }
    let mut command = cargo(&["test", "-p", "dunlin-system-tests", "--test", "it", "--"]);
    // Long tests try more often for longer; here each test tries as often as the options say.
    command.args(["--nocapture", "--test-threads=1", "--skip=long::"]).args(&options.filter);
    command.env("DUNLIN_CHAOS_TRIES", options.tries.to_string());
    command.env("DUNLIN_CHAOS_MINUTES", options.minutes.to_string());
    command.env("DUNLIN_CHAOS_CROWD", options.crowd.to_string());
    if let Some(seed) = options.seed {
        command.env("DUNLIN_CHAOS_SEED", seed.to_string());
    }
    process::run(&mut command)
}

/// A fake disk that loses, tears and flips: a life of the log for each seed.
fn crash_logs(options: &Options) -> Result<()> {
    let mut command = cargo(&["test", "-p", "dunlin-journal", "--test", "it", "crash"]);
    match options.seed {
        Some(seed) => command.env("DUNLIN_JOURNAL_SEED", seed.to_string()),
        None => command.env("DUNLIN_JOURNAL_SEEDS", (options.tries * 500).to_string()),
    };
    process::run(&mut command)
}
