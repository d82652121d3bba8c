//! Measures how the number of entities in a region affects the region's ticks, memory and processor time. Except in one
//! measurement, all changes are published.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;

use super::handover::{longest, settle_and_check};
use super::node::WorldReport;
use super::setting::WorldSetting;
use super::workers::WorldProcesses;
use crate::metric;
use crate::params::ParamValue;
use crate::point::{BenchContext, RunSample};
use crate::row::RowSet;

/// Measures ticks at their normal rate, for the time that the user requested. A longer time `at_least` replaces a
/// shorter requested time, except in quick runs.
pub fn measure(bench: &BenchContext, setting: WorldSetting, at_least: Duration) -> Result<RunSample> {
    let empty = WorldSetting { entities: 0, ..setting };
    let without = WorldProcesses::start(bench, empty, Duration::ZERO)?.run(setting.tick_ns, 5)?;
    let mut workers = WorldProcesses::start(bench, setting, Duration::ZERO)?;
    let time = bench.options.time.max(if bench.options.quick { Duration::ZERO } else { at_least });
    let ticks = (time.as_nanos() as u64 / setting.tick_ns).max(5);
    workers.run(setting.tick_ns, if bench.options.quick { 5 } else { 50 })?;
    let reports = workers.run(setting.tick_ns, ticks)?;
    settle_and_check(&mut workers)?;
    let most = |of: fn(&WorldReport) -> u64| reports.iter().map(of).max().unwrap_or(0) as f64;
    let sum = |of: fn(&WorldReport) -> u64| reports.iter().map(of).sum::<u64>() as f64;
    let elapsed_ns = reports[0].end_ns.saturating_sub(reports[0].start_ns).max(1) as f64;
    let grown = grown_bytes(&reports, &without);
    let each = |bytes: f64| bytes / setting.entities.max(1) as f64;
    Ok(RunSample::new()
        .with_time("p50_ns", longest(&reports, |report| report.tick_ns[0]))
        .with_time("p95_ns", longest(&reports, |report| report.tick_ns[1]))
        .with_time("p99_ns", longest(&reports, |report| report.tick_ns[2]))
        .with_time("max_ns", longest(&reports, |report| report.tick_ns[3]))
        .with("stall_ns", most(|report| report.late_ns))
        .with("ticks_per_s", most(|report| report.ticks) * 1e9 / elapsed_ns)
        .with("left_out", sum(|report| report.left_out))
        .with("behind", sum(|report| report.behind))
        .with("cpu_share", most(|report| report.cpu_ns) / elapsed_ns)
        .with("rss_bytes", most(|report| report.resident_bytes))
        .with_optional("grown_bytes", grown)
        .with("entity_bytes", each(sum(|report| report.store_bytes)))
        .with_optional("process_entity_bytes", grown.map(each)))
}

/// Returns the memory that the entities need: the memory of all processes with entities, minus the memory of equally
/// many processes without entities. Returns `None` if the result is not above 0. With few entities this happens,
/// because their memory is smaller than the usual variation of a process's memory.
fn grown_bytes(with: &[WorldReport], without: &[WorldReport]) -> Option<f64> {
    let resident = |reports: &[WorldReport]| reports.iter().map(|report| report.resident_bytes).sum::<u64>();
    resident(with).checked_sub(resident(without)).filter(|grown| *grown > 0).map(|grown| grown as f64)
}

/// Fits a straight line to the measured memory over the number of entities, and returns the result as text. According
/// to the benchmark document of Luciferase (another system), the memory grows linearly.
pub fn fit(rows: &RowSet) -> String {
    let number =
        |value: &ParamValue| if let ParamValue::Number(number) = value { Some(*number as f64) } else { None };
    let points: Vec<(f64, f64)> = rows
        .iter()
        .filter(|row| row.case == "capacity" && row.metric == "rss_bytes")
        // Uses only rows of worlds that publish to topics and have no standbys.
        .filter(|row| row.params.get("publish").is_none() && row.params.contains_all(&[("standbys", "0")]))
        .filter_map(|row| Some((number(row.params.get("entities")?)?, row.median)))
        .collect();
    if points.len() < 3 {
        return String::new();
    }
    let (slope, base, fit) = fit_line(&points);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "\nResident memory of a process without standbys, changes published = {} + {:.1} B × entities of its region (R² {fit:.4}, {} points)",
        metric::format_metric("rss_bytes", base),
        slope,
        points.len()
    );
    out
}

/// Fits a line by least squares. Returns the slope of the line, its value at 0, and the coefficient of determination.
fn fit_line(points: &[(f64, f64)]) -> (f64, f64, f64) {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(a, b)| of(a - x, b - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|a, _| a * a), sum(&|a, b| a * b), sum(&|_, b| b * b));
    let slope = xy / xx.max(f64::MIN_POSITIVE);
    (slope, y - slope * x, if yy > 0.0 { xy * xy / (xx * yy).max(f64::MIN_POSITIVE) } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_growth_of_zero_or_less_is_reported_as_unknown() {
        let of = |bytes: [u64; 2]| {
            bytes.map(|resident_bytes| WorldReport { resident_bytes, ..WorldReport::default() })
        };
        assert_eq!(grown_bytes(&of([30, 50]), &of([10, 20])), Some(50.0));
        assert_eq!(grown_bytes(&of([9, 21]), &of([10, 20])), None);
    }

    #[test]
    fn linear_fit_finds_slope_and_base_of_points_on_a_line() {
        let (slope, base, fit) = fit_line(&[(1.0, 5.0), (2.0, 7.0), (10.0, 23.0)]);
        assert!((slope - 2.0).abs() < 1e-9 && (base - 3.0).abs() < 1e-9 && (fit - 1.0).abs() < 1e-9);
    }
}
