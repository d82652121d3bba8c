//! Measures handovers between processes. The entities cause either the usual number of handovers, or as many as
//! possible.

use std::time::Duration;

use anyhow::Result;

use super::audit;
use super::node::WorldReport;
use super::setting::WorldSetting;
use super::workers::WorldProcesses;
use crate::point::{BenchContext, RunSample};

const WARMUP_TICKS: u64 = 25;

/// Measures ticks at their normal rate, for the time that the user requested, and then checks all entities. A longer
/// time `at_least` replaces a shorter requested time, except in quick runs.
pub fn paced(
    bench: &BenchContext,
    setting: WorldSetting,
    rtt: Duration,
    at_least: Duration,
) -> Result<RunSample> {
    let mut workers = WorldProcesses::start(bench, setting, rtt)?;
    let time = bench.options.time.max(if bench.options.quick { Duration::ZERO } else { at_least });
    let ticks = (time.as_nanos() as u64 / setting.tick_ns).max(5);
    workers.run(setting.tick_ns, if bench.options.quick { 5 } else { WARMUP_TICKS })?;
    let reports = workers.run(setting.tick_ns, ticks)?;
    settle_and_check(&mut workers)?;
    let offered = setting.offered_per_s();
    let sample = sample(&reports);
    let share = sample.get("handovers_per_s").map(|rate| rate / offered);
    let sample = if offered > 0.0 {
        sample.with("offered_per_s", offered).with_optional("offered_share", share)
    } else {
        sample
    };
    Ok(sample.with("lost", 0.0))
}

/// Measures ticks without pauses, in lock-step. Every entity crosses the border at every tick.
pub fn saturating(bench: &BenchContext, setting: WorldSetting) -> Result<RunSample> {
    let mut workers = WorldProcesses::start(bench, setting, Duration::ZERO)?;
    let probe = workers.run(0, if bench.options.quick { 2 } else { 20 })?;
    let tick_ns = elapsed_ns(&probe) / probe[0].ticks.max(1);
    let ticks = (bench.options.time.as_nanos() as u64 / tick_ns.max(1)).clamp(2, 1_000_000);
    let reports = workers.run(0, ticks)?;
    settle_and_check(&mut workers)?;
    let crossings = reports.iter().map(|report| report.departed).sum::<u64>() as f64;
    let share = crossings / (setting.entities * ticks) as f64;
    Ok(sample(&reports).with("crossed_share", share).with("lost", 0.0))
}

/// Waits until all handovers have ended, and checks that every entity exists exactly once.
pub fn settle_and_check(workers: &mut WorldProcesses) -> Result<()> {
    // After the first wait, messages of the last tick may still be on their way. After the second wait, all messages
    // have arrived.
    for _ in 0..2 {
        drop(workers.send_to_all::<usize>(&super::node::WorldCommand::Hold)?);
    }
    audit::check(workers)
}

/// Returns the time from the first tick of any worker to the last tick of any worker.
pub fn elapsed_ns(reports: &[WorldReport]) -> u64 {
    let start_ns = reports.iter().map(|report| report.start_ns).min().unwrap_or(0);
    let end_ns = reports.iter().map(|report| report.end_ns).max().unwrap_or(0);
    end_ns.saturating_sub(start_ns).max(1)
}

/// Computes the figures of all workers together, including the figures that appear in the tables of the benchmark
/// document of Luciferase, another system.
pub fn sample(reports: &[WorldReport]) -> RunSample {
    let elapsed_ns = elapsed_ns(reports) as f64;
    let sum = |of: fn(&WorldReport) -> u64| reports.iter().map(of).sum::<u64>() as f64;
    let most = |of: fn(&WorldReport) -> u64| reports.iter().map(of).max().unwrap_or(0) as f64;
    let rate = sum(|report| report.departed) * 1e9 / elapsed_ns;
    RunSample::new()
        .with("handovers_per_s", rate)
        .with("node_handovers_per_s", rate / reports.len().max(1) as f64)
        .with("bytes_per_s", sum(|report| report.sent_bytes) * 1e9 / elapsed_ns)
        .with_time("tick_p99_ns", longest(reports, |report| report.tick_ns[2]))
        .with("ticks_per_s", most(|report| report.ticks) * 1e9 / elapsed_ns)
        .with("rss_bytes", most(|report| report.resident_bytes))
        .with_time("p50_ns", longest(reports, |report| report.handover_ns[0]))
        .with_time("p99_ns", longest(reports, |report| report.handover_ns[1]))
        .with_time("max_ns", longest(reports, |report| report.handover_ns[2]))
}

/// Calls `of` for the report of each worker, and returns the longest of the returned times; `None` if there is none.
pub fn longest(reports: &[WorldReport], of: impl Fn(&WorldReport) -> Option<u64>) -> Option<u64> {
    reports.iter().filter_map(of).max()
}

/// A goal is met if handovers are at least this share of the border crossings. The share is below 1, because handovers
/// near the start and the end of the measurement may not be counted.
pub const OFFERED_SHARE_MIN: f64 = 0.98;
