//! Measures handovers in a world whose entities all cross the border in the same tick.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::handover::{sample, settle_and_check};
use super::setting::WorldSetting;
use super::workers::WorldProcesses;
use crate::point::{BenchContext, RunSample};

/// The number of ticks of a run. All handovers must be complete by then.
const TICKS: u64 = 20;

/// Lets all entities cross the border in the third tick. Measures how many ticks later the last entity is taken over.
pub fn measure(bench: &BenchContext, setting: WorldSetting) -> Result<RunSample> {
    let mut workers = WorldProcesses::start(bench, setting, Duration::ZERO)?;
    let reports = workers.run(setting.tick_ns, TICKS)?;
    settle_and_check(&mut workers)?;
    let (departed, admitted) = (reports[0].departed, reports[1].admitted);
    ensure!(
        departed == setting.entities,
        "{departed} entities were handed over instead of {}",
        setting.entities
    );
    ensure!(admitted == departed, "{admitted} entities were accepted instead of {departed}");
    let last_tick = reports[1].last_admitted;
    Ok(sample(&reports).with("ticks_taken", last_tick.saturating_sub(CROSSING_TICK) as f64).with("lost", 0.0))
}

/// The tick in which the entities cross the border. The first tick has number 1. The entities start so far from the
/// border that they need two and a half ticks to reach it.
const CROSSING_TICK: u64 = 3;

/// Returns the position at which the entities start, on the axis that crosses the border.
pub fn start_position(speed: f32, tick_ns: u64, border: f32) -> f32 {
    border - speed * (tick_ns as f32 / 1e9) * 2.5
}
