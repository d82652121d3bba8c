//! The command `scale recommend`: recommends machines and a number of workers for a cluster.

use std::io::Write;

use anyhow::{Context, Result, bail};
use dunlin_cli::commands::scale::RecommendArguments;
use dunlin_cli::console::Console;
use dunlin_cli::outcome::CommandRefusal;
use dunlin_scale::sim::SimulatedNode;
use dunlin_scale::{Recommendation, ScalingDocument, WorkerNeed, recommend};
use serde_json::json;

use super::{demand, document, prices, read};

pub fn run(arguments: &RecommendArguments, console: &Console) -> Result<()> {
    let now = arguments.file.as_deref().map(document).transpose()?;
    let prices = prices(arguments.prices.as_ref())?;
    let (demand, need) = (demand(&arguments.load)?, need(arguments)?);
    if arguments.spot > 100 {
        bail!("--spot is {}: give a percentage from 0 to 100", arguments.spot);
    }
    let found =
        recommend(&demand, &need, &prices, &SimulatedNode::default(), arguments.spot).ok_or_else(|| {
            CommandRefusal(
            "no machine in the table of prices is large enough for a worker: give a table with larger machines (--prices)"
                .to_owned(),
        )
        })?;
    let mut out = console.out();
    let yaml = found.to_yaml(arguments.spot);
    let changes = now.map(|now| changes(&now, &found)).unwrap_or_default();
    if console.json {
        let object = json!({
            "coordinators": found.coordinators, "coordinator": found.coordinator.name, "shards": found.shards,
            "workers_min": found.workers_min, "workers": found.workers, "workers_max": found.workers_max,
            "machine": found.fit.machine.name, "workers_a_machine": found.fit.workers,
            "per_month": found.cost, "currency": prices.currency, "reasons": found.reasons,
            "changes": changes, "yaml": yaml,
        });
        writeln!(out, "{object}")?;
        return Ok(out.flush()?);
    }
    for reason in &found.reasons {
        writeln!(out, "# {reason}")?;
    }
    writeln!(out, "# cost per month: {:.0} {}", found.cost, prices.currency)?;
    for change in &changes {
        writeln!(out, "# {change}")?;
    }
    out.write_all(yaml.as_bytes())?;
    Ok(out.flush()?)
}

fn changes(now: &ScalingDocument, found: &Recommendation) -> Vec<String> {
    let policy = &now.policy;
    let pairs = [
        ("coordinators.count", now.coordinators.count.to_string(), found.coordinators.to_string()),
        ("coordinators.instanceType", now.coordinators.machine.clone(), found.coordinator.name.clone()),
        ("workers.count", now.workers.count.to_string(), found.workers.to_string()),
        ("workers.instanceType", now.workers.machine.clone(), found.fit.machine.name.clone()),
        ("minWorkers", policy.workers_min.to_string(), found.workers_min.to_string()),
        ("maxWorkers", policy.workers_max.to_string(), found.workers_max.to_string()),
    ];
    let differ = pairs.into_iter().filter(|(_, now, then)| now != then);
    differ.map(|(key, now, then)| format!("{key}: {now} → {then}")).collect()
}

fn need(arguments: &RecommendArguments) -> Result<WorkerNeed> {
    let need = match &arguments.used {
        Some(path) => {
            let (cpus, memory_gib) =
                used(&read(path)?).with_context(|| format!("cannot read {}", path.display()))?;
            WorkerNeed::from_measurements(&cpus, &memory_gib)
                .with_context(|| format!("{}: give at least 20 measurements, none below 0", path.display()))?
        }
        None => WorkerNeed {
            cpus: arguments.cpus.unwrap_or_default(),
            memory_gib: arguments.memory_gib.unwrap_or_default(),
        },
    };
    let is_valid = |value: f64| value.is_finite() && value > 0.0;
    if !(is_valid(need.cpus) && is_valid(need.memory_gib)) {
        bail!(
            "a worker needs {} processors and {} GiB: set --cpus and --memory-gib, or the values in the file \
             of --used, above 0",
            need.cpus,
            need.memory_gib
        );
    }
    Ok(need)
}

fn used(text: &str) -> Result<(Vec<f64>, Vec<f64>)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let pairs = lines.map(|(at, line)| {
        let mut numbers = line.split([' ', '\t', ',']).filter(|word| !word.is_empty()).map(str::parse::<f64>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(cpus)), Some(Ok(gib)), None) => Ok((cpus, gib)),
            _ => bail!("line {}: expected two numbers: processors and GiB of memory", at + 1),
        }
    });
    Ok(pairs.collect::<Result<Vec<_>>>()?.into_iter().unzip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurement_line_without_exactly_two_numbers_is_refused() {
        assert_eq!(used("1.5 4\n\n0.5,\t3\n").unwrap(), (vec![1.5, 0.5], vec![4.0, 3.0]));
        assert_eq!(
            used("1 2\n3\n").unwrap_err().to_string(),
            "line 2: expected two numbers: processors and GiB of memory"
        );
        assert!(used("1 2 3").is_err() && used("a 2").is_err());
    }
}
