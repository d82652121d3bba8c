//! The command `scale`: plans, recommends or simulates the number of workers.
//!
//! The command needs no running node. This module reads the input files, and the crate `dunlin-scale` computes the
//! results.

mod plan;
mod recommend;
mod simulate;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dunlin_cli::commands::scale::{Arguments, LoadArguments, Subcommand};
use dunlin_cli::console::Console;
use dunlin_scale::{Demand, PRICES_TOML, Prices, ScalingDocument};
use dunlin_server::read_text;
use serde_json::json;

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    match &arguments.subcommand {
        Subcommand::Plan(arguments) => plan::run(arguments, console),
        Subcommand::Recommend(arguments) => recommend::run(arguments, console),
        Subcommand::Simulate(arguments) => simulate::run(arguments, console),
        Subcommand::Prices => {
            let mut out = console.out();
            match console.json {
                true => writeln!(out, "{}", prices_object(&Prices::default()))?,
                false => out.write_all(PRICES_TOML.as_bytes())?,
            }
            Ok(out.flush()?)
        }
    }
}

fn demand(load: &LoadArguments) -> Result<Demand> {
    let LoadArguments { per_s, task_ms, queued, payload_bytes, .. } = *load;
    let peak_per_s = load.peak_per_s.unwrap_or(2.0 * per_s);
    for (what, value) in [("--per-s", per_s), ("--peak-per-s", peak_per_s), ("--task-ms", task_ms)] {
        if !(value.is_finite() && value > 0.0 && value <= 1e12) {
            bail!("{what} is {value}: give a number above 0 and at most 1e12");
        }
    }
    if peak_per_s < per_s {
        bail!("--peak-per-s is {peak_per_s}: give at least {per_s}, the average (--per-s)");
    }
    Ok(Demand { per_s, peak_per_s, task_ms, queued, payload_bytes })
}

/// Returns the prices as JSON. The fields have the names that a price file uses.
fn prices_object(prices: &Prices) -> serde_json::Value {
    let machine = |machine: &dunlin_scale::MachineType| {
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
    read_text(path).with_context(|| format!("cannot read {}", path.display()))
}

fn prices(path: Option<&PathBuf>) -> Result<Prices> {
    let Some(path) = path else { return Ok(Prices::default()) };
    Prices::parse(&read(path)?).with_context(|| format!("cannot read {}", path.display()))
}

fn document(path: &Path) -> Result<ScalingDocument> {
    ScalingDocument::parse(&read(path)?).with_context(|| format!("cannot read {}", path.display()))
}

/// Formats a share as a percentage: 0.123 becomes `12.3 %`.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1_000.0)
}
