//! Draws curves that show how throughput, latency, memory and efficiency change with a growing parameter.
//!
//! A case has a curve if it was measured with three or more values of a numeric parameter while the other parameters
//! stayed the same. This rule finds the curves, so no list of curves is needed.

use std::collections::BTreeMap;

use crate::params::{ParamValue, Params};
use crate::report::plot::{Axis, AxisScale, LINES_MAX, Plot, PlotLine};
use crate::row::{FigureRow, RowSet};

/// The parameters that can be the horizontal axis of a curve, in order of preference.
const GROWING: [&str; 12] = [
    "subscribers",
    "workers",
    "entities",
    "nodes",
    "topics",
    "tenants",
    "clients",
    "keys",
    "batch",
    "bytes",
    "rate",
    "rtt_ms",
];

/// The metrics for which plots are drawn. Each inner list stands for one plot. The plot shows only one metric: the
/// first one in the list that was measured.
const DRAWN: [&[&str]; 4] = [
    &["deliveries_per_s", "handovers_per_s", "tasks_per_s", "ops_per_s", "msgs_per_s", "lookups_per_s"],
    &["p99_ns", "lookup_ns", "tick_p99_ns"],
    &["rss_bytes", "entity_bytes"],
    &["efficiency"],
];

const POINTS_MIN: usize = 3;
/// An axis is logarithmic if the largest value is at least this many times the smallest value.
const LOG_FROM: f64 = 20.0;

/// Returns the plots with the curves of a case.
pub fn of(title: &str, rows: &RowSet) -> Vec<Plot> {
    let drawn = DRAWN
        .iter()
        .filter_map(|names| names.iter().find(|name| rows.iter().any(|row| row.metric == **name)));
    drawn
        .filter_map(|metric| GROWING.iter().find_map(|growing| curve(title, rows, growing, metric)))
        .collect()
}

fn curve(title: &str, rows: &RowSet, growing: &str, metric: &str) -> Option<Plot> {
    let mut lines: BTreeMap<(bool, String), Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.metric == metric) {
        if let Some(ParamValue::Number(x)) = row.params.get(growing) {
            let key =
                (row.target != "dunlin", format!("{}{}", row.target, other_params(&row.params, growing)));
            lines.entry(key).or_default().push((*x as f64, row.median));
        }
    }
    lines.retain(|_, points| points.len() >= POINTS_MIN);
    let omitted = lines.len().saturating_sub(LINES_MAX);
    let lines: Vec<PlotLine> = lines
        .into_iter()
        .take(LINES_MAX)
        .map(|((_, name), mut points)| {
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            PlotLine { name, points }
        })
        .collect();
    let scale = |values: Vec<f64>| scale_of(&values);
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let x = Axis {
        name: growing.replace('_', " "),
        metric: None,
        scale: scale(all().map(|point| point.0).collect()),
    };
    let y = Axis {
        name: metric.replace('_', " "),
        metric: Some(metric.to_owned()),
        scale: scale(all().map(|point| point.1).collect()),
    };
    let title = format!("{title}: {} over {}", y.name, x.name);
    (!lines.is_empty()).then_some(Plot { title, x, y, lines, omitted })
}

fn scale_of(values: &[f64]) -> AxisScale {
    let least = values.iter().copied().fold(f64::MAX, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    if least > 0.0 && most / least >= LOG_FROM { AxisScale::Log } else { AxisScale::Linear }
}

/// Returns all parameters but `excluded` as text, for the name of a line in a plot.
pub fn other_params(params: &Params, excluded: &str) -> String {
    let format_param = |(name, value): (&str, &ParamValue)| match value {
        ParamValue::Text(text) => format!(" {text}"),
        ParamValue::Number(number) => format!(" {name}={number}"),
    };
    params.iter().filter(|(name, _)| *name != excluded).map(format_param).collect()
}

/// Returns the rows of each measurement. Measurements, and the rows of a measurement, keep their order.
pub fn points(rows: &RowSet) -> Vec<Vec<&FigureRow>> {
    let mut points: Vec<Vec<&FigureRow>> = Vec::new();
    for row in rows.iter() {
        let same =
            |point: &&mut Vec<&FigureRow>| point[0].target == row.target && point[0].params == row.params;
        match points.iter_mut().find(same) {
            Some(point) => point.push(row),
            None => points.push(vec![row]),
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Summary;

    fn rows(subscribers: &[u64]) -> RowSet {
        let mut rows = RowSet::default();
        for &count in subscribers {
            let params = Params::new().with("transport", "tcp").with("subscribers", count);
            let summary = Summary::of(&[1e6 / count as f64]).unwrap();
            rows.push(FigureRow::new("spot", "fanout", "dunlin", &params, "deliveries_per_s", summary, true))
                .unwrap();
        }
        rows
    }

    #[test]
    fn metric_with_three_measured_points_has_a_curve() {
        let plots = of("Fan-out", &rows(&[1000, 10, 100]));
        assert_eq!(plots.len(), 1);
        assert_eq!(plots[0].lines[0].name, "dunlin tcp");
        assert_eq!(
            plots[0].lines[0].points.iter().map(|point| point.0).collect::<Vec<_>>(),
            [10.0, 100.0, 1000.0]
        );
        assert_eq!((&plots[0].x.scale, &plots[0].y.scale), (&AxisScale::Log, &AxisScale::Log));
        let svg = plots[0].svg().unwrap();
        assert!(svg.contains("<svg") && svg.contains("10.0 k/s"), "{svg}");
    }

    #[test]
    fn metric_with_two_measured_points_has_no_curve() {
        assert!(of("Fan-out", &rows(&[10, 100])).is_empty());
    }
}
