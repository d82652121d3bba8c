//! `scale plan`: what a described cluster would cost and carry.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use dunlin_scale::plan;
use dunlin_scale::sim::Node;
use serde_json::json;

use crate::console::Console;

use super::{Asked, document, percent, prices};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin scale plan cluster.yaml --per-s 5000 --peak-per-s 11000
  dunlin scale prices > prices.toml; dunlin scale plan cluster.yaml --per-s 5000 --prices prices.toml

The file describes coordinators, workers and scaling: docs/autoscaling.md has one.")]
pub struct Arguments {
    /// The description, YAML
    file: PathBuf,
    #[command(flatten)]
    asked: Asked,
    /// A table of prices
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let document = document(&arguments.file)?;
    let prices = prices(arguments.prices.as_ref())?;
    let planned = plan(&document, &arguments.asked.demand()?, &prices, &Node::default());
    let mut out = console.out();
    let [coordinators, workers, warm] = planned.cost;
    let total = coordinators + workers + warm;
    if console.json {
        let object = json!({
            "workers": planned.workers, "workers_peak": planned.workers_peak,
            "coordinator_cpu": planned.coordinator_cpu, "coordinator_memory": planned.coordinator_memory,
            "currency": prices.currency, "coordinators_per_month": coordinators, "workers_per_month": workers,
            "warm_pool_per_month": warm, "per_month": total, "warnings": planned.warnings,
        });
        writeln!(out, "{object}")?;
        return Ok(out.flush()?);
    }
    let policy = &document.policy;
    writeln!(
        out,
        "workers      {:.0} on average, {} at the peak; {} to {}",
        planned.workers, planned.workers_peak, policy.workers_min, policy.workers_max
    )?;
    writeln!(
        out,
        "coordinator  {} of its scheduling processor at the peak, {} of its memory with the longest queue",
        percent(planned.coordinator_cpu),
        percent(planned.coordinator_memory)
    )?;
    writeln!(
        out,
        "a month      {total:.0} {}: coordinators {coordinators:.0}, workers {workers:.0}, warm pool {warm:.0}",
        prices.currency
    )?;
    for warning in &planned.warnings {
        writeln!(out, "{} {warning}", console.paint.strong("look at:"))?;
    }
    Ok(out.flush()?)
}
