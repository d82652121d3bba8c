//! `test`: everything CI runs, as a list of steps; the first failure ends it.
//!
//! A new suite is one more row of [`STEPS`]. Cheap steps come first, so that a slip shows within seconds.
//! A step fetches or starts what it needs itself: the list must pass on a fresh clone.
//!
//! Steps that run processes against the clock get a second try, and the summary says which needed it: a machine
//! that stood still is told from a defect, and neither is hidden.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;

use crate::process::{self, cargo};
use crate::{chaos, check, clients, demo, nats_clients, page, python, race, tidy, web, workspace};

/// What to run.
#[derive(clap::Args)]
pub struct Options {
    /// Leave out the slow steps
    #[arg(long)]
    quick: bool,
    /// Begin with this step, as the one that a failed run ended with
    #[arg(long, value_name = "STEP", value_parser = PossibleValuesParser::new(STEPS.iter().map(|step| step.name)))]
    from: Option<String>,
}

struct Step {
    name: &'static str,
    /// Also part of `--quick`.
    quick: bool,
    /// How often it may be run until it passes.
    tries: u32,
    run: fn() -> Result<()>,
}

struct Passed {
    name: &'static str,
    took: Duration,
    tries: u32,
}

const STEPS: &[Step] = &[
    Step { name: "tidy", quick: true, tries: 1, run: tidy::run },
    Step { name: "format", quick: true, tries: 1, run: check::format },
    Step { name: "clippy", quick: true, tries: 1, run: check::lints },
    Step { name: "tests", quick: true, tries: 2, run: tests },
    Step { name: "gRPC clients", quick: false, tries: 2, run: clients::all_there_are },
    Step { name: "doc tests", quick: false, tries: 1, run: doc_tests },
    Step { name: "python", quick: false, tries: 2, run: python::test },
    Step { name: "NATS clients", quick: false, tries: 2, run: nats_clients::all_there_are },
    Step { name: "web", quick: false, tries: 2, run: web::all_there_is },
    Step { name: "page", quick: false, tries: 2, run: page::where_it_can_be_had },
    Step { name: "chaos of the control state", quick: false, tries: 2, run: chaos::control::quick },
    Step { name: "chaos of topics", quick: false, tries: 2, run: chaos::topics::quick },
    Step { name: "race models", quick: false, tries: 1, run: race::quick },
    Step { name: "demo", quick: false, tries: 2, run: demo_once },
    Step { name: "demo of feeds", quick: false, tries: 2, run: demo_of_feeds },
    Step { name: "benchmarks, quick", quick: false, tries: 2, run: bench_quick },
];

fn tests() -> Result<()> {
    process::run(&mut cargo(&[
        "test",
        "--workspace",
        "--lib",
        "--bins",
        "--tests",
        "--examples",
        "--no-fail-fast",
    ]))
}

fn doc_tests() -> Result<()> {
    process::run(&mut cargo(&["test", "--workspace", "--doc"]))
}

fn demo_once() -> Result<()> {
    process::run(&mut demo::prepare(&demo::Options::once())?)
}

fn demo_of_feeds() -> Result<()> {
    process::run(&mut demo::prepare(&demo::Options::of_feeds())?)
}

/// Every point of these suites is run and checked; speeds are not judged.
fn bench_quick() -> Result<()> {
    let kept = workspace::target_directory()?.join("bench-quick");
    for suite in ["spot", "broker", "control"] {
        process::run(workspace::dunlin()?.args(["bench", suite, "--quick", "--keep"]).arg(&kept))?;
    }
    Ok(())
}

/// Runs the steps in order and closes with `N passed, M failed`.
pub fn run(options: &Options) -> Result<()> {
    let first = options.from.as_ref().and_then(|name| STEPS.iter().position(|step| step.name == name));
    run_steps(STEPS[first.unwrap_or(0)..].iter().filter(|step| step.quick || !options.quick))
}

fn run_steps(steps: impl Iterator<Item = &'static Step>) -> Result<()> {
    let steps: Vec<_> = steps.collect();
    let mut passed = Vec::new();
    let mut failure = None;
    for (index, step) in steps.iter().enumerate() {
        println!("\n== {}/{} {}", index + 1, steps.len(), step.name);
        let start = Instant::now();
        match until_it_passes(step) {
            Ok(tries) => passed.push(Passed { name: step.name, took: start.elapsed(), tries }),
            Err(error) => {
                eprintln!("error: {error:#}");
                failure = Some((step.name, start.elapsed()));
                break;
            }
        }
    }
    summarize(&steps, &passed, failure)
}

/// How many tries it took.
fn until_it_passes(step: &Step) -> Result<u32> {
    let mut tries = 1;
    loop {
        match (step.run)() {
            Ok(()) => return Ok(tries),
            Err(error) if tries < step.tries => eprintln!("\nerror: {error:#}\n== {} once more", step.name),
            Err(error) => return Err(error),
        }
        tries += 1;
    }
}

fn summarize(steps: &[&Step], passed: &[Passed], failure: Option<(&str, Duration)>) -> Result<()> {
    println!("\n== summary");
    for Passed { name, took, tries } in passed {
        let note = if *tries > 1 { ", but only when run again: read above what failed" } else { "" };
        println!("{name:<24} {:>8.1} s  passed{note}", took.as_secs_f64());
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
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn first_failure_ends_the_run() {
        static STEPS: [Step; 3] = [
            Step { name: "good", quick: true, tries: 1, run: || Ok(()) },
            Step { name: "bad", quick: true, tries: 1, run: || bail!("broken") },
            Step { name: "never", quick: true, tries: 1, run: || panic!("ran after a failure") },
        ];
        let error = run_steps(STEPS.iter()).unwrap_err();
        assert_eq!(error.to_string(), "step `bad` failed");
        assert!(run_steps(STEPS[..1].iter()).is_ok());
    }

    #[test]
    fn a_step_is_run_again_as_often_as_it_may_be() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = || if RUNS.fetch_add(1, Ordering::Relaxed) == 0 { bail!("a bad moment") } else { Ok(()) };
        assert!(until_it_passes(&Step { name: "once", quick: true, tries: 1, run }).is_err());
        RUNS.store(0, Ordering::Relaxed);
        assert_eq!(until_it_passes(&Step { name: "twice", quick: true, tries: 2, run }).unwrap(), 2);
    }
}
