//! Runs the selected measurements of a suite, and summarises their samples in rows.
//!
//! In every round, each measurement of a group runs once, so Dunlin and peers alternate. If a peer is not installed,
//! its measurements are skipped. If a measurement fails, later rounds leave it out, and the whole run counts as failed.
//! Skipped and failed measurements are reported. A missed goal is not a failure.

use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use crate::params::ParamValue;
use crate::point::{
    BenchContext, Measurement, MeasurementGroup, MissingPrerequisite, RunSample, Suite, target,
};
use crate::row::{FigureRow, RowSet};
use crate::stats::Summary;

/// The result of running a suite: the rows, and the measurements that were skipped or failed.
#[derive(Debug, Default)]
pub struct SuiteOutcome {
    /// The measured rows.
    pub rows: RowSet,
    /// The skipped measurements, each with the reason.
    pub skipped: Vec<String>,
    /// The failed measurements, each with the reason.
    pub failed: Vec<String>,
}

struct RunningPoint {
    point: Measurement,
    samples: Vec<RunSample>,
    dropped: bool,
}

/// Runs the selected measurements of a suite in all rounds.
pub fn run(suite: &Suite, bench: &BenchContext, with_peers: bool) -> Result<SuiteOutcome> {
    let groups = select_groups(suite, bench, with_peers);
    ensure!(!groups.is_empty(), "no measurement of suite {suite:?} matches the given --case and --param");
    let rounds = bench.options.warmup + bench.options.runs;
    let points: usize = groups.iter().map(Vec::len).sum();
    let progress = progress_bar(points as u64 * u64::from(rounds));
    let mut outcome = SuiteOutcome::default();
    for group in groups {
        let mut group: Vec<RunningPoint> = group
            .into_iter()
            .map(|point| RunningPoint { point, samples: Vec::new(), dropped: false })
            .collect();
        for round in 0..rounds {
            run_round(&mut group, bench, round < bench.options.warmup, &progress, &mut outcome);
        }
        for running in &group {
            add_rows(suite.name, running, &mut outcome.rows)?;
        }
    }
    progress.finish_and_clear();
    Ok(outcome)
}

fn select_groups(suite: &Suite, bench: &BenchContext, with_peers: bool) -> Vec<MeasurementGroup> {
    let mut groups = (suite.groups)(&bench.options, with_peers);
    for group in &mut groups {
        group.retain(|point| bench.options.selects(point.case, &point.params));
        if bench.options.url.is_some() {
            group.retain(supports_running_node);
        }
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Whether the measurement can be made with a node that is already running. This is so if the publisher and the
/// subscriber are both clients of the node, and if no parameter requires spinning or pinned threads.
fn supports_running_node(point: &Measurement) -> bool {
    let is = |name, text: &str| point.params.get(name).is_none_or(|value| *value == ParamValue::from(text));
    point.target == target::DUNLIN
        && point.params.get("topology").is_some_and(|topology| *topology == ParamValue::from("brokered"))
        && is("transport", "tcp")
        && is("wait", "parked")
        && is("pin", "free")
}

fn run_round(
    group: &mut [RunningPoint],
    bench: &BenchContext,
    warmup: bool,
    progress: &ProgressBar,
    outcome: &mut SuiteOutcome,
) {
    for running in group.iter_mut().filter(|running| !running.dropped) {
        progress.set_message(format!("{:?}", running.point));
        match (running.point.measure)(bench) {
            Ok(sample) if !warmup => running.samples.push(sample),
            Ok(_) => {}
            Err(error) => {
                running.dropped = true;
                running.samples.clear();
                let message = format!("{:?}: {error:#}", running.point);
                let list = if error.is::<MissingPrerequisite>() {
                    &mut outcome.skipped
                } else {
                    &mut outcome.failed
                };
                list.push(message);
            }
        }
        progress.inc(1);
    }
}

fn add_rows(suite: &str, running: &RunningPoint, rows: &mut RowSet) -> Result<()> {
    let Measurement { case, target, params, .. } = &running.point;
    // A metric gets a row even if some of the runs lack it. A latency, for example, is missing in a run without
    // samples.
    let mut metrics: Vec<&'static str> = Vec::new();
    for (metric, _) in running.samples.iter().flat_map(|sample| &sample.figures) {
        if !metrics.contains(metric) {
            metrics.push(metric);
        }
    }
    for metric in metrics {
        let values: Vec<f64> = running.samples.iter().filter_map(|sample| sample.get(metric)).collect();
        let Some(summary) = Summary::of(&values) else { continue };
        rows.push(FigureRow::new(suite, case, target, params, metric, summary, true))?;
    }
    Ok(())
}

/// Creates a progress bar on standard error. The bar is hidden if standard error is not a terminal.
fn progress_bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed}  {wide_msg:.dim}");
    let bar = ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
