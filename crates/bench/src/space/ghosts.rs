//! Measures ghosts. Every entity is near the border, and its ghost is sent to the neighbouring region at every tick.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::handover::{elapsed_ns, longest, settle_and_check};
use super::node::WorldReport;
use super::setting::WorldSetting;
use super::workers::WorldProcesses;
use crate::point::{BenchContext, RunSample};

/// Measures ticks at their normal rate. `rtt` is the round-trip time of the connections between the workers.
pub fn measure(bench: &BenchContext, setting: WorldSetting, rtt: Duration) -> Result<RunSample> {
    let mut workers = WorldProcesses::start(bench, setting, rtt)?;
    let ticks = (bench.options.time.as_nanos() as u64 / setting.tick_ns).max(5);
    workers.run(setting.tick_ns, 5)?;
    let reports = workers.run(setting.tick_ns, ticks)?;
    let sum = |of: fn(&WorldReport) -> u64| reports.iter().map(of).sum::<u64>();
    let dropped = sum(|report| report.dropped);
    ensure!(dropped == 0, "{dropped} messages were dropped: a buffer was full, or a connection was lost");
    settle_and_check(&mut workers)?;
    let elapsed_ns = elapsed_ns(&reports) as f64;
    let (ghosts, rounds) = (sum(|report| report.ghosts), ticks / u64::from(setting.ghosts_every));
    if setting.lockstep {
        // The ghosts of all entities are sent once before the first tick of a run. After that, they are sent after
        // every `ghosts_every` ticks.
        let expected = setting.entities * (rounds + 1);
        ensure!(ghosts == expected, "{ghosts} ghosts were sent, expected {expected}");
    }
    Ok(RunSample::new()
        .with("ghosts_per_s", ghosts as f64 * 1e9 / elapsed_ns)
        .with("bytes_per_s", sum(|report| report.sent_bytes) as f64 * 1e9 / elapsed_ns)
        .with_time("late_p99_ns", longest(&reports, |report| report.ghosts_late_ns))
        .with("ticks_per_s", reports[0].ticks as f64 * 1e9 / elapsed_ns)
        .with_time("tick_p99_ns", longest(&reports, |report| report.tick_ns[2])))
}
