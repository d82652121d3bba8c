//! `scale`: how many workers there should be: planned, recommended, simulated.
//!
//! Nothing here talks to a node. What is printed is worked out by the crate `scale`; the files are read here.

mod plan;
mod recommend;
mod simulate;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dunlin_scale::{Demand, Document, PRICES_TOML, Prices};
use serde_json::json;

use crate::console::Console;

#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// What a described cluster would cost and carry, and what is wrong with it
    Plan(plan::Arguments),
    /// What a cluster should be, by what was measured
    Recommend(recommend::Arguments),
    /// Run clusters in virtual time, and print what came of it
    Simulate(simulate::Arguments),
    /// Print the table of prices, to be edited
    Prices,
}

/// What is asked of a cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is asked of it")]
struct Asked {
    /// Tasks that arrive in a second, on average
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    per_s: f64,
    /// And at the most [default: twice that]
    #[arg(long, value_name = "COUNT")]
    peak_per_s: Option<f64>,
    /// How long a task takes, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 11.76)]
    task_ms: f64,
    /// Tasks that wait at the most
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    queued: u64,
    /// Bytes of a task's payload
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    payload_bytes: u64,
}

impl Asked {
    fn demand(&self) -> Result<Demand> {
        let peak_per_s = self.peak_per_s.unwrap_or(2.0 * self.per_s);
        for (what, value) in
            [("--per-s", self.per_s), ("--peak-per-s", peak_per_s), ("--task-ms", self.task_ms)]
        {
            if !(value.is_finite() && value > 0.0 && value <= 1e12) {
                bail!("{what} is {value}: it has to be a number above 0");
            }
        }
        if peak_per_s < self.per_s {
            bail!("--peak-per-s is {peak_per_s}, less than the average of {}", self.per_s);
        }
        let Asked { per_s, task_ms, queued, payload_bytes, .. } = *self;
        Ok(Demand { per_s, peak_per_s, task_ms, queued, payload_bytes })
    }
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    match &arguments.verb {
        Verb::Plan(arguments) => plan::run(arguments, console),
        Verb::Recommend(arguments) => recommend::run(arguments, console),
        Verb::Simulate(arguments) => simulate::run(arguments, console),
        Verb::Prices => {
            let mut out = console.out();
            match console.json {
                true => writeln!(out, "{}", as_json(&Prices::default()))?,
                false => out.write_all(PRICES_TOML.as_bytes())?,
            }
            Ok(out.flush()?)
        }
    }
}

/// As in the table, under the same names.
fn as_json(prices: &Prices) -> serde_json::Value {
    let machine = |machine: &dunlin_scale::Machine| {
        json!({
            "name": machine.name, "cpus": machine.cpus, "memory_gib": machine.memory_gib,
            "per_hour": machine.per_hour, "spot_per_hour": machine.spot_per_hour,
        })
    };
    json!({
        "currency": prices.currency, "hours_per_month": prices.hours_per_month,
        "warm_per_hour": prices.warm_per_hour, "machine": prices.machines.iter().map(machine).collect::<Vec<_>>(),
    })
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn prices(path: Option<&PathBuf>) -> Result<Prices> {
    let Some(path) = path else { return Ok(Prices::default()) };
    Prices::parse(&read(path)?).with_context(|| format!("in {}", path.display()))
}

fn document(path: &Path) -> Result<Document> {
    Document::parse(&read(path)?).with_context(|| format!("in {}", path.display()))
}

/// `12.3 %`.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1_000.0)
}
