//! The command `scale plan`: computes the cost and the load of a cluster that a file describes.

use std::io::Write;

use anyhow::Result;
use dunlin_cli::commands::scale::PlanArguments;
use dunlin_cli::console::Console;
use dunlin_scale::plan;
use dunlin_scale::sim::SimulatedNode;
use serde_json::json;

use super::{demand, document, percent, prices};

pub fn run(arguments: &PlanArguments, console: &Console) -> Result<()> {
    let document = document(&arguments.file)?;
    let prices = prices(arguments.prices.as_ref())?;
    let planned = plan(&document, &demand(&arguments.load)?, &prices, &SimulatedNode::default());
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
        "per month    {total:.0} {}: coordinators {coordinators:.0}, workers {workers:.0}, warm pool {warm:.0}",
        prices.currency
    )?;
    for warning in &planned.warnings {
        writeln!(out, "{} {warning}", console.paint.strong("warning:"))?;
    }
    Ok(out.flush()?)
}
