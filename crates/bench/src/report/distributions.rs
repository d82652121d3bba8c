//! Plots the distribution of latencies, from the median to the highest percentiles. Each measurement, of Dunlin or of a
//! peer, is a line of the plot.

use crate::report::curves::{other_params, points};
use crate::report::plot::{Axis, AxisScale, LINES_MAX, Plot, PlotLine};
use crate::row::{FigureRow, RowSet};

/// The quantiles on the horizontal axis, each with its metric and its label. A line of the plot shows the quantiles
/// that were measured.
const QUANTILES: [(&str, &str); 5] =
    [("p50_ns", "p50"), ("p95_ns", "p95"), ("p99_ns", "p99"), ("p999_ns", "p99.9"), ("p9999_ns", "p99.99")];

/// Returns a plot with the latency distributions of a case; `None` if no measurement has at least two quantiles.
pub fn of(title: &str, rows: &RowSet) -> Option<Plot> {
    let mut lines: Vec<(bool, PlotLine)> =
        points(rows).iter().filter_map(|point| Some((point[0].target != "dunlin", line(point)?))).collect();
    if lines.is_empty() {
        return None;
    }
    lines.sort_by_key(|(theirs, _)| *theirs);
    let omitted = lines.len().saturating_sub(LINES_MAX);
    let lines = balanced(lines);
    let last = lines.iter().flat_map(|line| &line.points).map(|point| point.0 as usize).max()?;
    let labels = QUANTILES[..=last].iter().map(|(_, label)| *label).collect();
    Some(Plot {
        title: format!("{title}: latencies"),
        x: Axis {
            name: "share of all that took no longer".into(),
            metric: None,
            scale: AxisScale::Words(labels),
        },
        y: Axis { name: "latency".into(), metric: Some("p50_ns".into()), scale: AxisScale::Log },
        lines,
        omitted,
    })
}

fn line(point: &[&FigureRow]) -> Option<PlotLine> {
    let at = |(position, (metric, _)): (usize, &(&str, &str))| {
        let row = point.iter().find(|row| row.metric == *metric && row.median > 0.0)?;
        Some((position as f64, row.median))
    };
    let points: Vec<(f64, f64)> = QUANTILES.iter().enumerate().filter_map(at).collect();
    let name = format!("{}{}", point[0].target, other_params(&point[0].params, ""));
    (points.len() > 1).then_some(PlotLine { name, points })
}

/// Keeps at most [`LINES_MAX`] lines. If there are more, half of the kept lines are for Dunlin and half for peers,
/// unless one side has fewer lines. Dunlin's lines come first.
fn balanced(lines: Vec<(bool, PlotLine)>) -> Vec<PlotLine> {
    let (theirs, ours): (Vec<_>, Vec<_>) = lines.into_iter().partition(|(theirs, _)| *theirs);
    let room_for_ours = LINES_MAX - theirs.len().min(LINES_MAX / 2);
    let ours: Vec<PlotLine> = ours.into_iter().take(room_for_ours).map(|(_, line)| line).collect();
    let room = LINES_MAX - ours.len();
    ours.into_iter().chain(theirs.into_iter().take(room).map(|(_, line)| line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;
    use crate::stats::Summary;

    fn push(rows: &mut RowSet, target: &str, bytes: u64, metrics: &[(&str, f64)]) {
        let params = Params::new().with("bytes", bytes);
        for (metric, value) in metrics {
            let summary = Summary::of(&[*value]).unwrap();
            rows.push(FigureRow::new("spot", "latency", target, &params, metric, summary, true)).unwrap();
        }
    }

    #[test]
    fn plot_line_shows_exactly_the_measured_percentiles() {
        let mut rows = RowSet::default();
        push(&mut rows, "nats", 64, &[("p50_ns", 9e4), ("p99_ns", 2e5), ("p9999_ns", 9e5)]);
        push(&mut rows, "dunlin", 64, &[("p50_ns", 2e4), ("p99_ns", 5e4)]);
        push(&mut rows, "raw", 64, &[("p50_ns", 1e4)]);
        let plot = of("Latency", &rows).unwrap();
        let names: Vec<&str> = plot.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["dunlin bytes=64", "nats bytes=64"]);
        assert_eq!(plot.lines[1].points, [(0.0, 9e4), (2.0, 2e5), (4.0, 9e5)]);
        assert!(plot.svg().unwrap().contains("p99.99"));
    }

    #[test]
    fn plot_over_the_line_limit_still_shows_every_target() {
        let mut rows = RowSet::default();
        for target in ["dunlin", "nats"] {
            (0..9).for_each(|bytes| push(&mut rows, target, bytes, &[("p50_ns", 1e4), ("p99_ns", 2e4)]));
        }
        let plot = of("Latency", &rows).unwrap();
        assert_eq!((plot.lines.len(), plot.omitted), (8, 10));
        assert_eq!(plot.lines.iter().filter(|line| line.name.starts_with("nats")).count(), 4);
    }
}
