//! `test`: runs the steps of CI, all parts (`--all`), or one part, step or test by name. `docs/testing.md` explains how
//! to use the command.
//!
//! The steps of CI are the rows of [`DEFAULT`]. Fast steps come first, and the first failure ends the run. The steps
//! pass in a fresh clone: they use the programs that the step `build` has built, and fetch everything else that they
//! need. A test that fails makes the run fail, even if the test passes when it is repeated ([`nextest`]).

mod busy;
mod history;
pub mod nextest;
mod parts;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;

use crate::process::{self, cargo};
use crate::{chaos, check, clients, demo, nats_clients, page, python, tidy, workspace};
use history::History;
use nextest::TestSelection;

/// The options of a test run, such as the steps, parts or tests to run.
#[derive(clap::Args)]
pub struct Options {
    /// Name of a part or step (see --list), or text in the names of the tests to run, including long tests
    /// [default: the steps of CI]
    name: Option<String>,
    /// Run all parts: long tests, all client libraries, browsers, chaos, race models and demos
    #[arg(long, conflicts_with = "name")]
    all: bool,
    /// First step to run, for example the one at which the last run failed
    #[arg(long, value_name = "STEP", value_parser = PossibleValuesParser::new(DEFAULT.iter().map(|step| step.name)), conflicts_with_all = ["name", "all"])]
    from: Option<String>,
    /// Package to build and test; needs NAME; may be given several times [default: all]
    #[arg(long, short, value_name = "PACKAGE", requires = "name")]
    package: Vec<String>,
    /// Number of threads per core to keep busy during the tests
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    busy: usize,
    /// Append the result to tests/runs.tsv; needs a tree without uncommitted changes
    #[arg(long)]
    record: bool,
    /// List steps and parts, with the newest recorded run of each part, without running any
    #[arg(long)]
    list: bool,
}

/// A step of a test run: the name that the summary shows, and the function that runs the step.
pub struct Step {
    name: &'static str,
    run: fn() -> Result<()>,
}

/// The steps of CI. Each kind of test runs at least once in them.
const DEFAULT: &[Step] = &[
    Step { name: "tidy", run: tidy::run },
    Step { name: "spelling", run: check::spelling },
    Step { name: "format", run: check::format },
    Step { name: "dependencies", run: check::dependencies },
    Step { name: "clippy", run: check::lints },
    Step { name: "rustdoc", run: check::rustdoc },
    Step { name: "build", run: build },
    Step { name: "tests", run: tests },
    Step { name: "doc-tests", run: doc_tests },
    Step { name: "python", run: python::test },
    Step { name: "grpc-client", run: clients::run_one },
    Step { name: "nats-client", run: nats_clients::run_one },
    Step { name: "page", run: page::run_one },
    Step { name: "kills", run: chaos::topics::quick },
    Step { name: "demo", run: demo_once },
    Step { name: "benchmarks", run: bench_smoke },
];

/// Builds everything that the later steps need.
fn build() -> Result<()> {
    process::run(&mut cargo(&["build", "--workspace", "--lib", "--bins", "--tests", "--examples"]))?;
    workspace::build()
}

fn tests() -> Result<()> {
    nextest::run(&TestSelection { profile: "default", ..TestSelection::default() })
}

fn doc_tests() -> Result<()> {
    process::run(&mut cargo(&["test", "--quiet", "--workspace", "--doc"]))
}

fn demo_once() -> Result<()> {
    process::run(&mut demo::prepare(&demo::Options::once())?)
}

/// Makes every measurement of the benchmark suite `spot`. Fails if a measurement cannot be made. The measured speeds
/// are not checked.
fn bench_smoke() -> Result<()> {
    bench("spot")
}

fn bench(suite: &str) -> Result<()> {
    let directory = workspace::target_directory()?.join("bench-quick");
    process::run(workspace::build_dunlin()?.args(["bench", suite, "--quick", "--keep"]).arg(&directory))
}

/// Runs the requested steps, parts or tests, and prints `N passed, M failed`.
pub fn run(options: &Options) -> Result<()> {
    let history = History::read()?;
    if options.list {
        return list(&history);
    }
    let _busy = busy::BusyThreads::start(options.busy);
    if options.all {
        return run_all(&history, options);
    }
    let Some(name) = &options.name else {
        let first = options.from.as_ref().and_then(|name| DEFAULT.iter().position(|step| step.name == name));
        return run_recorded(&history, "test", options, || run_steps(&DEFAULT[first.unwrap_or(0)..]));
    };
    if let Some(part) = parts::ALL.iter().find(|part| part.name == name) {
        return run_recorded(&history, part.name, options, || run_steps(part.steps));
    }
    let mut steps = DEFAULT.iter().chain(parts::ALL.iter().flat_map(|part| part.steps));
    if let Some(step) = steps.find(|step| step.name == name) {
        return run_steps(std::slice::from_ref(step));
    }
    let filter = Some(format!("test({name})"));
    nextest::run(&TestSelection {
        profile: "all",
        filter,
        packages: options.package.clone(),
        ..TestSelection::default()
    })
}

/// Runs every part, even if an earlier part has failed.
fn run_all(history: &History, options: &Options) -> Result<()> {
    let mut failed = Vec::new();
    for part in parts::ALL {
        println!("\n==== part {}: {}", part.name, part.about);
        if let Err(error) = run_recorded(history, part.name, options, || run_steps(part.steps)) {
            eprintln!("error: part {}: {error:#}", part.name);
            failed.push(part.name);
        }
    }
    println!("\n{} passed, {} failed", parts::ALL.len() - failed.len(), failed.len());
    if failed.is_empty() { Ok(()) } else { bail!("these parts failed: {}", failed.join(", ")) }
}

fn run_recorded(
    history: &History,
    what: &str,
    options: &Options,
    run: impl Fn() -> Result<()>,
) -> Result<()> {
    let commit = options.record.then(History::commit).transpose()?;
    let start = Instant::now();
    let outcome = run();
    if let Some(commit) = commit {
        history.add(&commit, what, options.busy, start.elapsed(), outcome.is_ok())?;
    }
    outcome
}

fn list(history: &History) -> Result<()> {
    let names: Vec<_> = DEFAULT.iter().map(|step| step.name).collect();
    println!("cargo xtask test: {}", names.join(", "));
    for part in parts::ALL {
        println!("cargo xtask test {}: {}", part.name, part.about);
    }
    history.print(std::iter::once("test").chain(parts::ALL.iter().map(|part| part.name)));
    Ok(())
}

struct PassedStep {
    name: &'static str,
    took: Duration,
}

fn run_steps(steps: &[Step]) -> Result<()> {
    let start = Instant::now();
    let mut passed = Vec::new();
    let mut failure = None;
    for (index, step) in steps.iter().enumerate() {
        println!("\n== {}/{} {}", index + 1, steps.len(), step.name);
        let start = Instant::now();
        match (step.run)() {
            Ok(()) => passed.push(PassedStep { name: step.name, took: start.elapsed() }),
            Err(error) => {
                eprintln!("error: {error:#}");
                failure = Some((step.name, start.elapsed()));
                break;
            }
        }
    }
    summarize(steps, &passed, failure, start.elapsed())
}

fn summarize(
    steps: &[Step],
    passed: &[PassedStep],
    failure: Option<(&str, Duration)>,
    total: Duration,
) -> Result<()> {
    println!("\n== summary");
    for PassedStep { name, took } in passed {
        println!("{name:<16} {:>6.1} min  passed", minutes(*took));
    }
    if let Some((name, took)) = failure {
        println!("{name:<16} {:>6.1} min  FAILED", minutes(took));
    }
    let started = passed.len() + usize::from(failure.is_some());
    for step in &steps[started..] {
        println!("{:<16}             not run", step.name);
    }
    println!("{:<16} {:>6.1} min", "all", minutes(total));
    println!("\n{} passed, {} failed", passed.len(), usize::from(failure.is_some()));
    match failure {
        None => Ok(()),
        Some((name, _)) => bail!("step `{name}` failed"),
    }
}

fn minutes(time: Duration) -> f64 {
    time.as_secs_f64() / 60.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_failed_test_step_ends_the_run() {
        static STEPS: [Step; 3] = [
            Step { name: "good", run: || Ok(()) },
            Step { name: "bad", run: || bail!("the step is broken") },
            Step { name: "never", run: || panic!("ran after a failure") },
        ];
        let error = run_steps(&STEPS).unwrap_err();
        assert_eq!(error.to_string(), "step `bad` failed");
        assert!(run_steps(&STEPS[..1]).is_ok());
    }

    #[test]
    fn test_steps_and_parts_have_distinct_names() {
        let steps = DEFAULT.iter().chain(parts::ALL.iter().flat_map(|part| part.steps));
        let mut names: Vec<_> = steps.map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        let parts: Vec<_> = parts::ALL.iter().map(|part| part.name).collect();
        // A part may have the name of one of its steps only if this step is the part's only one: the name then selects
        // the same tests in both meanings.
        for part in parts::ALL.iter().filter(|part| names.contains(&part.name)) {
            assert_eq!(part.steps.len(), 1, "{} is a part and a step", part.name);
        }
        assert_eq!(parts.len(), parts.iter().collect::<std::collections::HashSet<_>>().len());
    }
}
