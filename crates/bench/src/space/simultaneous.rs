//! Entities that all cross the border in one tick.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::handover::{ended, sample};
use super::setting::WorldSetting;
use super::workers::WorldProcesses;
use crate::point::{Bench, RunSample};

/// Ticks within which all handovers must end.
const TICKS: u64 = 20;

/// All entities cross in the third tick; measures the time until the last is taken.
pub fn measure(bench: &Bench, setting: WorldSetting) -> Result<RunSample> {
    let mut workers = WorldProcesses::start(bench, setting, Duration::ZERO)?;
    let seen = workers.run(setting.tick_ns, TICKS)?;
    ended(&mut workers)?;
    let (departed, admitted) = (seen[0].departed, seen[1].admitted);
    ensure!(departed == setting.entities, "{departed} of {} entities were handed over", setting.entities);
    ensure!(admitted == departed, "{admitted} of {departed} entities were accepted");
    let taken = seen[1].last_admitted;
    Ok(sample(&seen).with("ticks_taken", taken.saturating_sub(CROSSING_TICK) as f64).with("lost", 0.0))
}

/// Tick of the crossing, from 1: entities start two and a half ticks before the border.
const CROSSING_TICK: u64 = 3;

/// Initial position.
pub fn start(speed: f32, tick_ns: u64, border: f32) -> f32 {
    border - speed * (tick_ns as f32 / 1e9) * 2.5
}
