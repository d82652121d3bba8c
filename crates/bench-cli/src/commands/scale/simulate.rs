//! The command `scale simulate`: simulates clusters, and prints tables that show whether Dunlin meets its requirements.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use dunlin_cli::commands::scale::{SimulateArguments, SimulationTable};
use dunlin_cli::console::{Console, grouped};
use dunlin_cli::table::TextTable;
use dunlin_scale::sim::{self, SimulatedNode, TimeSeries, Workload};
use dunlin_scale::{Policy, Prices, WorkerNeed};
use serde_json::{Value, json};

use super::{percent, prices, read, seconds};

/// How long the simulation applies each value of the series of loads, in ms. In the original series, a value covers 30
/// minutes. The simulation applies a value for 75 s, so that a day takes an hour.
const VALUE_MS: u64 = 75_000;
/// The number of values for one day in the series of loads.
const DAY_VALUES: usize = 48;
/// The number of worker starts to simulate. Some of the simulated starts fail.
const WARM_STARTS: u64 = 20_000;
const DAY_MS: u64 = 3_600_000;

pub fn run(arguments: &SimulateArguments, console: &Console) -> Result<()> {
    check(arguments)?;
    let all = SimulationTable::value_variants();
    let tables = if arguments.tables.is_empty() { all } else { &arguments.tables };
    let prices = prices(arguments.prices.as_ref())?;
    for &which in tables {
        let (title, heading, rows) = match which {
            SimulationTable::Throughput => throughput(arguments),
            SimulationTable::Out => scale_out(arguments.seed),
            SimulationTable::In => scale_in(arguments.seed),
            SimulationTable::Warm => warm(arguments.seed),
            SimulationTable::Tenants => tenants(arguments.seed),
            SimulationTable::Noisy => noisy(arguments.seed),
            SimulationTable::Policies => policies(arguments)?,
            SimulationTable::Cost => cost(arguments, &prices)?,
        };
        print(console, &title, heading, &rows)?;
    }
    Ok(())
}

fn check(arguments: &SimulateArguments) -> Result<()> {
    if arguments.workers.iter().any(|workers| !(1..=1_000_000).contains(workers)) {
        bail!("--workers is {:?}: give numbers from 1 to 1000000", arguments.workers);
    }
    if !(1..=1_000_000_000).contains(&arguments.tasks) {
        bail!("--tasks is {}: give a number from 1 to 1000000000", arguments.tasks);
    }
    if !(1..=100_000).contains(&arguments.peak) || !(1..=1_024).contains(&arguments.shards) {
        bail!(
            "--peak is {} and --shards is {}: give --peak from 1 to 100000, and --shards from 1 to 1024",
            arguments.peak,
            arguments.shards
        );
    }
    let is_valid = arguments.task_ms.is_finite() && (1.0..=60_000.0).contains(&arguments.task_ms);
    if is_valid { Ok(()) } else { bail!("--task-ms is {}: give a number from 1 to 60000", arguments.task_ms) }
}

/// A table to print: its title, its column headings, and its rows. A row consists of the texts of its cells, and of a
/// JSON object with the same values.
type PrintedTable = (String, &'static [&'static str], Vec<(Vec<String>, Value)>);

fn print(
    console: &Console,
    title: &str,
    heading: &'static [&'static str],
    rows: &[(Vec<String>, Value)],
) -> Result<()> {
    let mut out = console.out();
    if console.json {
        for (_, object) in rows {
            writeln!(out, "{object}")?;
        }
        return Ok(out.flush()?);
    }
    let mut table = TextTable::new(heading);
    rows.iter().for_each(|(cells, _)| table.row(cells.clone()));
    writeln!(out, "{}", console.paint.strong(title))?;
    table.write(&mut out, console.paint)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

fn ms(us: u64) -> String {
    format!("{:.2}", us as f64 / 1_000.0)
}

fn throughput(arguments: &SimulateArguments) -> PrintedTable {
    let node = SimulatedNode { shards: arguments.shards, ..SimulatedNode::default() };
    let rows = arguments.workers.iter().map(|&workers| {
        let row = sim::throughput(arguments.seed, workers, arguments.tasks, node);
        let cells = vec![
            workers.to_string(),
            grouped(row.per_s as u64),
            ms(row.waits.p50_us),
            ms(row.waits.p99_us),
            percent(row.used.workers),
            percent(row.used.processor),
            percent(row.used.memory),
            percent(row.efficiency),
            percent(row.efficiency_nominal),
            row.used.bottleneck().to_owned(),
        ];
        let object = json!({
            "table": "throughput", "workers": workers, "tasks": row.tasks, "tasks_per_s": row.per_s,
            "wait_p50_us": row.waits.p50_us, "wait_p99_us": row.waits.p99_us,
            "done_p50_us": row.done.p50_us, "done_p99_us": row.done.p99_us,
            "workers_used": row.used.workers, "coordinator_used": row.used.processor, "log_used": row.used.log,
            "network_used": row.used.network, "memory_used": row.used.memory,
            "efficiency": row.efficiency, "efficiency_nominal": row.efficiency_nominal,
            "bottleneck": row.used.bottleneck(),
        });
        (cells, object)
    });
    (
        "throughput while tasks are always waiting; wait times in ms at 90 % of that throughput".to_owned(),
        &[
            "WORKERS",
            "TASKS/S",
            "WAIT P50",
            "WAIT P99",
            "WORKERS USED",
            "COORDINATOR",
            "MEMORY",
            "EFFICIENCY",
            "OF 85/S",
            "BOTTLENECK",
        ],
        rows.collect(),
    )
}

fn scale_out(seed: u64) -> PrintedTable {
    let rows = sim::scale_out(seed).into_iter().map(|row| {
        let cells = vec![
            row.trigger.name().to_owned(),
            seconds(row.detection_ms),
            seconds(row.decision_ms),
            seconds(row.ready_ms),
            seconds(row.total_ms()),
            row.workers.to_string(),
        ];
        let object = json!({
            "table": "out", "trigger": row.trigger.name(), "detection_ms": row.detection_ms,
            "decision_ms": row.decision_ms, "ready_ms": row.ready_ms, "total_ms": row.total_ms(), "workers": row.workers,
        });
        (cells, object)
    });
    (
        "scaling out".to_owned(),
        &["TRIGGER", "DETECTION", "DECISION", "READY", "TOTAL", "WORKERS"],
        rows.collect(),
    )
}

fn scale_in(seed: u64) -> PrintedTable {
    let rows = sim::scale_in(seed).into_iter().map(|row| {
        let cells = vec![
            seconds(row.cooldown_ms),
            seconds(row.decision_ms),
            seconds(row.drain_ms),
            seconds(row.termination_ms),
            seconds(row.total_ms()),
        ];
        let object = json!({
            "table": "in", "cooldown_ms": row.cooldown_ms, "decision_ms": row.decision_ms, "drain_ms": row.drain_ms,
            "termination_ms": row.termination_ms, "total_ms": row.total_ms(),
        });
        (cells, object)
    });
    ("scaling in".to_owned(), &["COOL-DOWN", "DECISION", "DRAIN", "TERMINATION", "TOTAL"], rows.collect())
}

fn warm(seed: u64) -> PrintedTable {
    let rows = sim::warm_pool(seed, WARM_STARTS).into_iter().map(|row| {
        let failed = row.failed as f64 / row.starts.max(1) as f64;
        let cells = vec![
            row.size.to_string(),
            seconds(row.total_ms),
            format!("{} of {}", row.failed, grouped(row.starts)),
            percent(failed),
            format!("{:.1}", row.warm_hours_per_hour),
        ];
        let object = json!({
            "table": "warm", "size": row.size, "total_ms": row.total_ms, "starts": row.starts, "failed": row.failed,
            "warm_hours_per_hour": row.warm_hours_per_hour,
        });
        (cells, object)
    });
    (
        "warm pool".to_owned(),
        &["PREPARED", "TOTAL", "FAILED STARTS", "SHARE", "WORKER HOURS PER HOUR"],
        rows.collect(),
    )
}

fn tenants(seed: u64) -> PrintedTable {
    let (rows, jain) = sim::tenants(seed);
    let rows = rows.into_iter().map(|row| {
        let gb = |bytes: u64| format!("{:.0} GB", bytes as f64 / 1e9);
        let cells = vec![
            row.tenant.clone(),
            format!("{:.0}", row.cpu_quota),
            format!("{:.1}", row.cpu),
            gb(row.memory_quota),
            gb(row.memory),
            if row.is_compliant { "yes" } else { "no" }.to_owned(),
        ];
        let object = json!({
            "table": "tenants", "tenant": row.tenant, "cpu_quota": row.cpu_quota, "cpu": row.cpu,
            "memory_quota_bytes": row.memory_quota, "memory_bytes": row.memory, "compliant": row.is_compliant,
            "jain": jain,
        });
        (cells, object)
    });
    (
        format!("tenants at saturation; Jain's index {jain:.4}"),
        &["TENANT", "CORE QUOTA", "CORES", "MEMORY QUOTA", "MEMORY", "COMPLIANT"],
        rows.collect(),
    )
}

fn noisy(seed: u64) -> PrintedTable {
    let rows = sim::noisy_neighbour(seed).into_iter().map(|row| {
        let cells = vec![
            percent(row.load),
            row.tenant.clone(),
            format!("{:.1}", row.before_per_s),
            format!("{:.1}", row.during_per_s),
            format!("{:+.2} %", row.change() * 100.0),
        ];
        let object = json!({
            "table": "noisy", "load": row.load, "tenant": row.tenant, "before_per_s": row.before_per_s,
            "during_per_s": row.during_per_s, "change": row.change(),
        });
        (cells, object)
    });
    (
        "tenant-a submits ten times as much".to_owned(),
        &["USUAL LOAD", "TENANT", "BEFORE", "DURING", "CHANGE"],
        rows.collect(),
    )
}

/// Returns the workloads to simulate, each with its name. At the peak of each workload, `--peak` workers are busy for
/// 70 % of the time.
fn workloads(arguments: &SimulateArguments) -> Result<Vec<(&'static str, Workload)>> {
    let high_per_s = f64::from(arguments.peak) * 1_000.0 / arguments.task_ms * 0.7;
    let mut all = vec![
        (
            "diurnal",
            Workload::Diurnal { low_per_s: high_per_s / 7.0, high_per_s, day_ms: DAY_MS, differ: 0.05 },
        ),
        (
            "crowd",
            Workload::Crowd {
                base_per_s: high_per_s / 4.0,
                peak_per_s: high_per_s,
                from_ms: 1_200_000,
                for_ms: 900_000,
            },
        ),
    ];
    if let Some(path) = &arguments.series {
        let series =
            TimeSeries::parse(&read(path)?).with_context(|| format!("cannot read {}", path.display()))?;
        let from = 8 * 7 * DAY_VALUES % series.len();
        let series = Arc::new(series);
        all.push(("series", Workload::Series { series, high_per_s, value_ms: VALUE_MS, from }));
    }
    Ok(all)
}

fn policy(arguments: &SimulateArguments, name: &str) -> Policy {
    let seasons = if name == "series" { vec![DAY_VALUES, 7 * DAY_VALUES] } else { vec![DAY_VALUES] };
    Policy::cloud((arguments.peak / 20).max(1), arguments.peak * 5 / 4 + 1).with_forecast(VALUE_MS, seasons)
}

fn policies(arguments: &SimulateArguments) -> Result<PrintedTable> {
    let mut rows = Vec::new();
    for (name, workload) in workloads(arguments)? {
        let mean_us = arguments.task_ms * 1_000.0;
        for row in sim::compare(arguments.seed, &workload, &policy(arguments, name), mean_us) {
            let cells = vec![
                name.to_owned(),
                row.policy.to_owned(),
                format!("{} of {}", row.violated_minutes, row.minutes),
                format!("{:.1}", row.worker_hours),
                format!("{:.1}", row.excess_hours),
                row.forecast_error.map_or("–".to_owned(), percent),
                row.thrash.to_string(),
                grouped(row.tasks),
            ];
            let object = json!({
                "table": "policies", "workload": name, "policy": row.policy, "violated_minutes": row.violated_minutes,
                "minutes": row.minutes, "worker_hours": row.worker_hours, "excess_hours": row.excess_hours,
                "forecast_error": row.forecast_error, "thrash": row.thrash, "tasks": row.tasks,
            });
            rows.push((cells, object));
        }
    }
    Ok((
        "a day, simulated in an hour; SLOW MINUTES are those in which the P99 from submission to start exceeds 2 s".to_owned(),
        &[
            "WORKLOAD",
            "POLICY",
            "SLOW MINUTES",
            "WORKER HOURS",
            "ABOVE ORACLE",
            "FORECAST ERROR",
            "THRASH",
            "TASKS",
        ],
        rows,
    ))
}

fn cost(arguments: &SimulateArguments, prices: &Prices) -> Result<PrintedTable> {
    let (name, workload) = workloads(arguments)?.swap_remove(0);
    let mean_us = arguments.task_ms * 1_000.0;
    // The processors and memory that one worker needs, according to Dunlin's requirements. A worker runs 85 tasks per
    // second, each with about 17 ms of CPU time, and uses 57 % of 8 GB of memory.
    let need = WorkerNeed { cpus: 1.42, memory_gib: 4.6 };
    let policy = policy(arguments, name);
    let rows = sim::savings(arguments.seed, &workload, &policy, mean_us, prices, (need, "m6i.large"));
    let rows = rows
        .context("the table of prices has no m6i.large, or no machine that is large enough for a worker")?;
    let rows = rows.into_iter().map(|row| {
        let cells = vec![
            row.strategy.clone(),
            grouped(row.before as u64),
            grouped(row.after as u64),
            format!("{:.0}", row.savings_per_month()),
            row.risk.to_owned(),
            row.evidence.clone(),
        ];
        let object = json!({
            "table": "cost", "strategy": row.strategy, "before_per_month": row.before, "after_per_month": row.after,
            "saves_per_month": row.savings_per_month(), "currency": prices.currency, "risk": row.risk, "seen": row.evidence,
        });
        (cells, object)
    });
    Ok((
        format!(
            "cost per month in {}; savings overlap, and the last row applies all measures together",
            prices.currency
        ),
        &["STRATEGY", "BEFORE", "AFTER", "SAVES", "RISK", "OBSERVED"],
        rows.collect(),
    ))
}
