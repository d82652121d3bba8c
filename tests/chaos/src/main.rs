//! `chaos replica=PROGRAM toxiproxy=PROGRAM linear=PROGRAM dir=DIR [first=SEED] [seeds=N] [steps=N] [count]`: N runs, of seeds
//! that follow one another.
//!
//! Ends at the first run in which something is broken, with code 1; with `count` it goes on, and says how many there were.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result, anyhow};
use dunlin_chaos::run::{Stage, run};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let find = |key: &str| {
        arguments.iter().find_map(|argument| argument.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
    };
    let given = |key: &'static str| find(key).with_context(|| format!("{key}= is missing"));
    let number = |key: &str, otherwise: u64| find(key).map_or(Ok(otherwise), |number| number.parse());
    let stage = Stage {
        replica: given("replica")?,
        toxiproxy: given("toxiproxy")?,
        linear: given("linear")?,
        dir: given("dir")?.into(),
        steps: number("steps", 8)?,
    };
    let (first, seeds) = (number("first", 1)?, number("seeds", 1)?);
    let count = arguments.iter().any(|argument| argument == "count");
    let mut broken = 0;
    for seed in first..first + seeds {
        let began = std::time::Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&stage, seed)));
        let outcome = outcome.unwrap_or_else(|panic| Err(anyhow!("{}", said(&*panic))));
        let took = began.elapsed().as_secs_f64();
        match outcome {
            Ok(report) => println!("seed {seed}: {took:.1} s, {report}"),
            Err(error) => {
                println!("seed {seed}: {took:.1} s, BROKEN: {error:#}");
                broken += 1;
                if !count {
                    break;
                }
            }
        }
    }
    println!("{broken} of {seeds} runs broken");
    std::process::exit(i32::from(broken > 0))
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic")
}
