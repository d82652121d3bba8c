//! Compares reactive, predictive and oracle scaling with the same arrivals of tasks. An hour of simulated time contains
//! the load of a day. The delays of the simulated workers are those of the Grey document, which is another system's
//! documentation.
//!
//! A violation is a minute in which the P99 of the time from a task's submission to its start is too long. The lower
//! the target of processor use, the more reserve there is for load that arrives while workers start. With the
//! document's delays, workers start within two minutes, a thirtieth of the simulated day. In two minutes, the load of a
//! daily wave grows by less than a tenth of its peak. At the document's target of 70 %, none of the three ways of
//! scaling therefore has violations, and the document's claim of "four fifths fewer violations" cannot be checked.
//! Higher targets leave less reserve, so several targets are measured.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use dunlin_scale::sim::{PolicyRow, TimeSeries, Workload, compare};
use dunlin_scale::{Policy, ScaleThresholds};

use crate::point::{MissingPrerequisite, RunSample};

/// How long the simulation applies one value of a demand series, in ms. In the original series, a value covers 30
/// minutes.
const VALUE_MS: u64 = 75_000;
/// The number of values for one day in a demand series.
const DAY_VALUES: usize = 48;
const DAY_MS: u64 = VALUE_MS * DAY_VALUES as u64;
/// The duration of a task, in µs.
const TASK_US: f64 = 500_000.0;

/// How the number of arriving tasks changes over a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalPattern {
    /// A daily wave between a seventh of the peak and the peak. The days differ by 5 %.
    Diurnal,
    /// A sudden load: at one moment, the load becomes four times as high, for a quarter of the day. Nothing announces
    /// this moment, so the rise cannot be forecast.
    Crowd,
    /// The demand for electricity in England and Wales. Each run uses one day of the ninth week.
    Series,
}

impl ArrivalPattern {
    /// All patterns, in the order of their measurements.
    pub const ALL: [Self; 3] = [Self::Diurnal, Self::Crowd, Self::Series];

    /// Returns the name of the pattern, which is a value of the parameter `arrivals`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Diurnal => "diurnal",
            Self::Crowd => "crowd",
            Self::Series => "series",
        }
    }

    fn workload(self, high_per_s: f64, seed: u64) -> Result<Workload> {
        Ok(match self {
            Self::Diurnal => {
                Workload::Diurnal { low_per_s: high_per_s / 7.0, high_per_s, day_ms: DAY_MS, differ: 0.05 }
            }
            Self::Crowd => Workload::Crowd {
                base_per_s: high_per_s / 4.0,
                peak_per_s: high_per_s,
                from_ms: DAY_MS / 3,
                for_ms: DAY_MS / 4,
            },
            Self::Series => {
                let series = taylor()?;
                let from = (8 * 7 + seed as usize % 7) * DAY_VALUES % series.len();
                Workload::Series { series: Arc::new(series), high_per_s, value_ms: VALUE_MS, from }
            }
        })
    }

    fn seasons(self) -> Vec<usize> {
        if self == Self::Series { vec![DAY_VALUES, 7 * DAY_VALUES] } else { vec![DAY_VALUES] }
    }
}

/// Measures all three ways of scaling with one seed. At the highest load of the day, `peak` workers would be busy for
/// `cpu_target` percent of the time.
pub fn measure(seed: u64, arrivals: ArrivalPattern, cpu_target: u64, peak: u32) -> Result<RunSample> {
    let cpu_target = cpu_target as f64 / 100.0;
    let high_per_s = f64::from(peak) * 1e6 / TASK_US * cpu_target;
    let workload = arrivals.workload(high_per_s, seed)?;
    let policy = Policy::cloud((peak / 20).max(1), peak * 5 / 4).with_forecast(VALUE_MS, arrivals.seasons());
    let triggers = ScaleThresholds { cpu_target, cpu_low: cpu_target * 0.8, ..policy.triggers };
    let rows = compare(seed, &workload, &Policy { triggers, ..policy }, TASK_US);
    let [reactive, predictive, oracle] = rows.as_slice() else {
        anyhow::bail!("unexpected number of policies: {}", rows.len())
    };
    for row in &rows {
        ensure!(row.minutes == 60 && row.tasks > 0, "the results {row:?} do not cover a day");
    }
    Ok(sample(reactive, predictive, oracle))
}

fn sample(reactive: &PolicyRow, predictive: &PolicyRow, oracle: &PolicyRow) -> RunSample {
    let minutes = |row: &PolicyRow| row.violated_minutes as f64;
    let mut sample = RunSample::new()
        .with("reactive_violated_minutes", minutes(reactive))
        .with("predictive_violated_minutes", minutes(predictive))
        .with("oracle_violated_minutes", minutes(oracle))
        .with("reactive_worker_hours", reactive.worker_hours)
        .with("predictive_worker_hours", predictive.worker_hours)
        .with("oracle_worker_hours", oracle.worker_hours)
        .with("hours_times", predictive.worker_hours / reactive.worker_hours)
        .with("reactive_thrash", reactive.thrash as f64)
        .with("predictive_thrash", predictive.thrash as f64);
    if let Some(error) = predictive.forecast_error {
        sample = sample.with("forecast_error_share", error);
    }
    // The metric is the share of reactive scaling's violations that predictive scaling prevents. Without such
    // violations, it is undefined.
    if reactive.violated_minutes > 0 {
        sample = sample.with("spared_share", 1.0 - minutes(predictive) / minutes(reactive));
    }
    sample
}

fn taylor() -> Result<TimeSeries> {
    let folder = std::env::var_os("DUNLIN_DATA").map_or_else(|| PathBuf::from("data"), PathBuf::from);
    let path = folder.join("taylor.py");
    let text = std::fs::read_to_string(&path).map_err(|error| {
        MissingPrerequisite(format!("{}: {error}; `cargo xtask data` fetches it", path.display()))
    })?;
    TimeSeries::parse(&text).with_context(|| format!("cannot parse {}", path.display()))
}
