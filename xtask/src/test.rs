//! `test`: everything CI runs, as a list of steps; the first failure ends it.
//!
//! A new suite is one more row of [`STEPS`]. Cheap steps come first, so that a slip shows within seconds.
//! A step fetches or starts what it needs itself: the list must pass on a fresh clone.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::{self, cargo};
use crate::{check, demo, race, tidy, workspace};

/// What to run.
#[derive(clap::Args)]
pub struct Options {
    /// Leave out the slow steps
    #[arg(long)]
    quick: bool,
}

struct Step {
    name: &'static str,
    /// Also part of `--quick`.
    quick: bool,
    run: fn() -> Result<()>,
}

const STEPS: &[Step] = &[
    Step { name: "tidy", quick: true, run: tidy::run },
    Step { name: "format", quick: true, run: check::format },
    Step { name: "clippy", quick: true, run: check::lints },
    Step { name: "tests", quick: true, run: tests },
    Step { name: "doc tests", quick: false, run: doc_tests },
    Step { name: "race models", quick: false, run: race::quick },
    Step { name: "demo", quick: false, run: demo_once },
    Step { name: "benchmarks, quick", quick: false, run: bench_quick },
];

fn tests() -> Result<()> {
    process::run(&mut cargo(&["test", "--workspace", "--lib", "--bins", "--tests", "--examples"]))
}

fn doc_tests() -> Result<()> {
    process::run(&mut cargo(&["test", "--workspace", "--doc"]))
}

fn demo_once() -> Result<()> {
    process::run(&mut demo::prepare(&demo::Options::once())?)
}

/// Every point of the suite is run and checked; speeds are not judged.
fn bench_quick() -> Result<()> {
    let kept = workspace::target_directory()?.join("bench-quick");
    process::run(workspace::dunlin()?.args(["bench", "spot", "--quick", "--keep"]).arg(kept))
}

/// Runs the steps in order and closes with `N passed, M failed`.
pub fn run(options: &Options) -> Result<()> {
    run_steps(STEPS.iter().filter(|step| step.quick || !options.quick))
}

fn run_steps<'a>(steps: impl Iterator<Item = &'a Step>) -> Result<()> {
    let steps: Vec<_> = steps.collect();
    let mut passed: Vec<(&str, Duration)> = Vec::new();
    let mut failure = None;
    for (index, step) in steps.iter().enumerate() {
        println!("\n== {}/{} {}", index + 1, steps.len(), step.name);
        let start = Instant::now();
        let outcome = (step.run)();
        let took = start.elapsed();
        match outcome {
            Ok(()) => passed.push((step.name, took)),
            Err(error) => {
                eprintln!("error: {error:#}");
                failure = Some((step.name, took));
                break;
            }
        }
    }
    summarize(&steps, &passed, failure)
}

fn summarize(steps: &[&Step], passed: &[(&str, Duration)], failure: Option<(&str, Duration)>) -> Result<()> {
    println!("\n== summary");
    for (name, took) in passed {
        println!("{name:<24} {:>8.1} s  passed", took.as_secs_f64());
    }
    if let Some((name, took)) = failure {
        println!("{name:<24} {:>8.1} s  FAILED", took.as_secs_f64());
    }
    let begun = passed.len() + usize::from(failure.is_some());
    for step in &steps[begun..] {
        println!("{:<24}             not run", step.name);
    }
    println!("\n{} passed, {} failed", passed.len(), usize::from(failure.is_some()));
    match failure {
        None => Ok(()),
        Some((name, _)) => bail!("step `{name}` failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_failure_ends_the_run() {
        let steps = [
            Step { name: "good", quick: true, run: || Ok(()) },
            Step { name: "bad", quick: true, run: || bail!("broken") },
            Step { name: "never", quick: true, run: || panic!("ran after a failure") },
        ];
        let error = run_steps(steps.iter()).unwrap_err();
        assert_eq!(error.to_string(), "step `bad` failed");
        assert!(run_steps(steps[..1].iter()).is_ok());
    }
}
