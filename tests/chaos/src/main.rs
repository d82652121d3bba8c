//! `chaos replica=PROGRAM toxiproxy=PROGRAM linear=PROGRAM clock=LIBRARY dir=DIR [first=SEED] [seeds=N] [steps=N]
//! [count]`: runs N consecutive seeds against the control state. `chaos topics dunlin=PROGRAM dir=DIR …`: runs N
//! consecutive seeds against topics of a cluster.
//!
//! Ends with code 1 at the first run that finds an error; with `count`, continues and prints the number of
//! such runs.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result, anyhow};
use dunlin_chaos::{run, topics};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["topics", "probe"] {
        return topics::probe();
    }
    let find = |key: &str| {
        arguments.iter().find_map(|argument| argument.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
    };
    let required = |key: &'static str| find(key).with_context(|| format!("argument {key}= is missing"));
    let number = |key: &str, default: u64| find(key).map_or(Ok(default), |number| number.parse());
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let (first, seeds, dir) = (number("first", 1)?, number("seeds", 1)?, required("dir")?.into());
    let failures = if has("topics") {
        let setup = topics::TopicsSetup { program: required("dunlin")?, dir, steps: number("steps", 4)? };
        run_seeds(first, seeds, has("count"), |seed| {
            topics::run(&setup, seed).map(|report| report.to_string())
        })
    } else {
        let (replica, toxiproxy, linear) =
            (required("replica")?, required("toxiproxy")?, required("linear")?);
        let clock = required("clock")?.into();
        let setup = run::RunSetup { replica, toxiproxy, linear, clock, dir, steps: number("steps", 8)? };
        run_seeds(first, seeds, has("count"), |seed| run::run(&setup, seed).map(|report| report.to_string()))
    };
    std::process::exit(i32::from(failures > 0))
}

/// Makes `seeds` runs, with consecutive seeds that begin with `first`. Returns the number of runs that found an error.
/// Stops after the first run that finds an error, unless `count` is set.
fn run_seeds(first: u64, seeds: u64, count: bool, run: impl Fn(u64) -> Result<String>) -> u64 {
    let mut failures = 0;
    for seed in first..first + seeds {
        let start = std::time::Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
        let outcome = outcome.unwrap_or_else(|panic| Err(anyhow!("{}", panic_text(&*panic))));
        let took = start.elapsed().as_secs_f64();
        match outcome {
            Ok(report) => println!("seed {seed}: {took:.1} s, {report}"),
            Err(error) => {
                println!("seed {seed}: {took:.1} s, BROKEN: {error:#}");
                failures += 1;
                if !count {
                    break;
                }
            }
        }
    }
    println!("{failures} of {seeds} runs broken");
    failures
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic")
}
