//! Measures the highest rate of updates with which subscribers keep up, and the highest rate of deliveries.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::feed::outcome::FeedFigures;
use crate::feed::run;
use crate::feed::scenario::FeedScenario;
use crate::point::{BenchContext, RunSample};

/// The highest latency in ns at which subscribers still keep up with a rate. Subscribers keep up if no update is
/// missing, and if 99 % of the updates are applied at most this long after they were due.
const LATE_NS_MAX: f64 = 10e6;
/// The longest duration of one step of the search for the highest rate. A search takes about twelve steps.
const STEP: Duration = Duration::from_secs(1);
const STEPS_UP_MAX: u32 = 16;
const STEPS_BETWEEN: u32 = 3;

/// The number of deliveries per second, over all clients, that the source offers when the highest delivery rate is
/// measured.
const OFFERED: u64 = 20_000_000;
/// The retention in bytes, which is enough for all records of a run.
const HISTORY_BYTES: u64 = 256 << 20;

/// Finds the highest rate with which subscribers keep up. First doubles the rate until the subscribers do not keep up.
/// Then searches between this rate and the rate before it.
pub fn measure_sustained_rate(bench: &BenchContext, base: &FeedScenario) -> Result<RunSample> {
    let first = if base.clients == 1 { 20_000 } else { 500 };
    let (mut best, mut failed_rate) = (None, None);
    let mut rate = first;
    for _ in 0..STEPS_UP_MAX {
        match try_rate(bench, base, rate)? {
            Some(sample) => best = Some((rate, sample)),
            None => {
                failed_rate = Some(rate);
                break;
            }
        }
        rate *= 2;
    }
    if let Some(mut high) = failed_rate {
        for _ in 0..STEPS_BETWEEN {
            let low = best.as_ref().map_or(0, |(rate, _)| *rate);
            let middle = low + (high - low) / 2;
            match try_rate(bench, base, middle)? {
                Some(sample) => best = Some((middle, sample)),
                None => high = middle,
            }
        }
    }
    let (_, sample) =
        best.with_context(|| format!("the node did not keep up with {} updates a second", first / 2))?;
    Ok(sample)
}

/// Runs the scenario at a rate. Returns the sample if the subscribers kept up; otherwise tries once more, because the
/// machine may have been busy.
fn try_rate(bench: &BenchContext, base: &FeedScenario, rate: u32) -> Result<Option<RunSample>> {
    let step = FeedScenario { rate: Some(rate), time: base.time.min(STEP), ..base.clone() };
    for _ in 0..2 {
        let outcome = run::run(bench, &step)?;
        let complete = outcome.is_complete();
        let sample = outcome.sample();
        if complete && sample.get("intended_p99_ns").is_some_and(|late| late <= LATE_NS_MAX) {
            return Ok(Some(sample));
        }
    }
    Ok(None)
}

/// Offers the subscribers more updates than the node can deliver. The topic retains all records.
pub fn measure_max_deliveries(bench: &BenchContext, base: &FeedScenario) -> Result<RunSample> {
    let rate = u32::try_from(OFFERED / base.clients.max(1) as u64).unwrap_or(u32::MAX);
    let scenario = FeedScenario {
        rate: Some(rate),
        time: base.time.min(STEP),
        warmup: Duration::ZERO,
        every_record: true,
        history_bytes: HISTORY_BYTES,
        ..base.clone()
    };
    let outcome: FeedFigures = run::run(bench, &scenario)?;
    outcome.check(&scenario)?;
    // Subscribers continue to read after the last publication. The delivery rate includes the updates that they then
    // read, and the time that this takes.
    let per_s = outcome.tally.per_s(scenario.time);
    let mut sample = outcome.sample();
    sample
        .figures
        .retain(|(metric, _)| ["source_per_s", "node_cpu_s", "client_cpu_s", "drops"].contains(metric));
    Ok(sample.with("deliveries_per_s", per_s))
}
