//! Defines the columns of the tables that show the results of the benchmark cases. Some cases repeat a measurement from
//! the benchmark document of another system, such as SPOT. The tables of these cases begin with the columns of the
//! document's table; further columns follow.

use crate::metric;
use crate::point::target;
use crate::row::{FigureRow, RowSet};
use crate::table::{LineStyle, Table};

/// The layout of the table for one benchmark case: its title and its columns.
#[derive(Clone, Copy, Debug)]
pub struct CaseLayout {
    /// The name of the benchmark case.
    pub case: &'static str,
    /// The table's title.
    pub title: &'static str,
    /// The columns after the column `Scenario`, which is always the first. A column has a heading and a value.
    pub columns: &'static [(&'static str, ColumnValue)],
}

/// The value that a column shows: a parameter, or a metric's median, range or percentage.
#[derive(Clone, Copy, Debug)]
pub enum ColumnValue {
    /// The value of a parameter.
    Param(&'static str),
    /// The median of a metric.
    Metric(&'static str),
    /// The lowest and the highest value of a metric.
    Range(&'static str),
    /// The value of a metric as a percentage of this metric's value in another row. The fields are the metric, the
    /// other row's target, and the other row's transport. The two rows have the same case and the same further
    /// parameters.
    Share(&'static str, &'static str, &'static str),
}

use ColumnValue::{Metric, Param, Range, Share};

/// The table layouts of suite `spot`, with the columns of the benchmark document of SPOT (another system).
pub const SPOT: &[CaseLayout] = &[
    CaseLayout {
        case: "throughput",
        title: "Throughput",
        columns: &[
            ("Message size", Param("bytes")),
            ("Message count", Metric("messages")),
            ("Time", Metric("elapsed_ns")),
            ("Throughput", Metric("msgs_per_s")),
            ("Bandwidth", Metric("bytes_per_s")),
            ("Lowest … highest", Range("msgs_per_s")),
            ("Bytes read per message", Metric("touched_bytes")),
        ],
    },
    CaseLayout {
        case: "latency",
        title: "Latency (round trip)",
        columns: &[
            ("Message size", Param("bytes")),
            ("Average", Metric("avg_ns")),
            ("p50", Metric("p50_ns")),
            ("p95", Metric("p95_ns")),
            ("p99", Metric("p99_ns")),
            ("p50 lowest … highest", Range("p50_ns")),
        ],
    },
    CaseLayout {
        case: "topics",
        title: "Topic scalability and registry look-up",
        columns: &[
            ("Topic count", Param("topics")),
            ("Time to create", Metric("create_ns")),
            ("Creates", Metric("creates_per_s")),
            ("10,000 look-ups", Metric("elapsed_ns")),
            ("Look-ups", Metric("lookups_per_s")),
            ("Time per look-up", Metric("lookup_ns")),
        ],
    },
    CaseLayout {
        case: "fanout",
        title: "Subscriber scalability",
        columns: &[
            ("Subscribers", Param("subscribers")),
            ("Setup time", Metric("setup_ns")),
            ("Publish time", Metric("publish_ns")),
            ("Delivered", Metric("deliveries_per_s")),
            ("Bandwidth", Metric("bytes_per_s")),
        ],
    },
    CaseLayout {
        case: "multi_topic",
        title: "Multi-topic concurrent publishing",
        columns: &[
            ("Topic count", Param("topics")),
            ("Messages", Metric("messages")),
            ("Time", Metric("elapsed_ns")),
            ("Throughput", Metric("msgs_per_s")),
            ("Bandwidth", Metric("bytes_per_s")),
        ],
    },
];

const SCENARIO: &[(&str, ColumnValue)] = &[
    ("Clients", Param("clients")),
    ("Instruments", Metric("instruments")),
    ("Throughput (inc/s)", Metric("deliveries_per_s")),
    ("p50", Metric("sent_p50_ns")),
    ("p99", Metric("sent_p99_ns")),
    ("p999", Metric("sent_p999_ns")),
    ("Resyncs", Metric("resyncs")),
    ("Drops", Metric("drops")),
    ("p50 from the due time", Metric("intended_p50_ns")),
    ("p99 from the due time", Metric("intended_p99_ns")),
    ("Delay of the source", Metric("slip_ns")),
    ("CPU node", Metric("node_cpu_s")),
    ("CPU clients", Metric("client_cpu_s")),
];

/// The table layouts of suite `feed`: first the columns of the benchmark document of MDD-Sim (another system), then
/// additional columns.
pub const FEED: &[CaseLayout] = &[
    CaseLayout { case: "baseline_1x1_10k", title: "Baseline (10k target)", columns: SCENARIO },
    CaseLayout { case: "fanout_1x100_1k", title: "Fan-out (1k target, 100 clients)", columns: SCENARIO },
    CaseLayout {
        case: "multi_100x10_500",
        title: "Multi-instrument (100 instruments, 10 clients)",
        columns: SCENARIO,
    },
    CaseLayout {
        case: "slow_client",
        title: "Slow-client stress",
        columns: &[
            ("Clients", Param("clients")),
            ("Throughput (inc/s)", Metric("deliveries_per_s")),
            ("Delivered", Metric("deliveries")),
            ("Reading time", Metric("read_ns")),
            ("Merged", Metric("merged")),
            ("Staleness p50", Metric("stale_p50_ns")),
            ("Staleness p99", Metric("stale_p99_ns")),
            ("Staleness ÷ processing time", Metric("stale_p99_by_processing")),
            ("Resyncs", Metric("resyncs")),
            ("Drops", Metric("drops")),
            ("CPU node", Metric("node_cpu_s")),
            ("CPU clients", Metric("client_cpu_s")),
        ],
    },
    CaseLayout { case: "loss_1x10_1k", title: "Loss simulation", columns: SCENARIO },
    CaseLayout { case: "custom", title: "Custom configuration", columns: SCENARIO },
];

/// Returns the tables that show `rows`: one table for each case. The table of a case with a layout has the layout's
/// columns. The table of any other case has a line for each metric.
pub fn tables(layouts: &[CaseLayout], rows: &RowSet) -> Vec<Table> {
    let mut cases: Vec<&str> = layouts.iter().map(|layout| layout.case).collect();
    for row in rows.iter() {
        if !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    let mut tables: Vec<Table> = cases.into_iter().map(|case| table(layouts, case, rows)).collect();
    tables.retain(|table| !table.is_empty());
    tables
}

fn table(layouts: &[CaseLayout], case: &str, rows: &RowSet) -> Table {
    let mut table = empty_table(layouts, case, None);
    for PointText { style, lines, .. } in points(layouts, case, rows) {
        lines.into_iter().for_each(|cells| table.push_line(style, cells));
    }
    table
}

/// Returns the table of a case with its headings, but without lines. `more` is the heading of an additional last
/// column.
pub fn empty_table(layouts: &[CaseLayout], case: &str, more: Option<&str>) -> Table {
    let layout = layouts.iter().find(|layout| layout.case == case);
    let (title, mut headings) = match layout {
        Some(layout) => {
            let columns = layout.columns.iter().map(|(heading, _)| *heading);
            (layout.title, std::iter::once("Scenario").chain(columns).collect())
        }
        None => (case, vec!["Scenario", "Metric", "Median", "Lowest … highest"]),
    };
    headings.extend(more);
    Table::new(title, &headings)
}

/// The lines that show the results of one measurement in a table.
#[derive(Debug)]
pub struct PointText<'a> {
    /// One of the measurement's rows, which identifies the measurement.
    pub row: &'a FigureRow,
    /// How the lines are highlighted.
    pub style: LineStyle,
    /// The cells of each line.
    pub lines: Vec<Vec<String>>,
}

/// Returns the lines for each measurement of a case, in the order of `rows`.
pub fn points<'a>(layouts: &[CaseLayout], case: &str, rows: &'a RowSet) -> Vec<PointText<'a>> {
    let layout = layouts.iter().find(|layout| layout.case == case);
    let mut points: Vec<PointText<'a>> = Vec::new();
    for row in rows.iter().filter(|row| row.case == case) {
        let known = points.iter_mut().find(|point| same_point(point.row, row));
        match (layout, known) {
            (Some(_), Some(_)) => {}
            (Some(layout), None) => {
                points.push(PointText {
                    row,
                    style: style(row),
                    lines: vec![layout_line(layout, row, rows)],
                });
            }
            (None, Some(known)) => known.lines.push(metric_line(row)),
            (None, None) => points.push(PointText { row, style: style(row), lines: vec![metric_line(row)] }),
        }
    }
    points
}

fn layout_line(layout: &CaseLayout, row: &FigureRow, rows: &RowSet) -> Vec<String> {
    let cells = layout.columns.iter().map(|(_, cell)| cell_text(*cell, row, rows));
    std::iter::once(scenario(layout, row)).chain(cells).collect()
}

fn metric_line(row: &FigureRow) -> Vec<String> {
    let scenario = format!("{} {}", row.target, row.params);
    vec![scenario, row.metric.clone(), metric::format_metric(&row.metric, row.median), range(row)]
}

/// Whether two rows belong to the same measurement.
pub fn same_point(one: &FigureRow, other: &FigureRow) -> bool {
    one.target == other.target && one.case == other.case && one.params == other.params
}

fn style(row: &FigureRow) -> LineStyle {
    if row.target == target::DUNLIN { LineStyle::Plain } else { LineStyle::Dim }
}

/// Returns the text of the column `Scenario`, which identifies a measurement: the target, and those parameters that
/// have no column of their own.
fn scenario(layout: &CaseLayout, row: &FigureRow) -> String {
    let has_column =
        |name: &str| layout.columns.iter().any(|(_, cell)| matches!(cell, Param(param) if *param == name));
    let rest = row.params.iter().filter(|(name, _)| !has_column(name)).map(|(name, value)| match value {
        crate::params::ParamValue::Text(text) => format!(" {text}"),
        number => format!(" {name}={number}"),
    });
    std::iter::once(row.target.clone()).chain(rest).collect()
}

fn cell_text(cell: ColumnValue, row: &FigureRow, rows: &RowSet) -> String {
    let row_of =
        |metric_name: &str| rows.iter().find(|other| same_point(other, row) && other.metric == metric_name);
    match cell {
        Param(name) => or_dash(row.params.get(name).map(ToString::to_string)),
        Metric(metric_name) => {
            or_dash(row_of(metric_name).map(|row| metric::format_metric(metric_name, row.median)))
        }
        Range(metric_name) => or_dash(row_of(metric_name).map(range)),
        Share(metric_name, target, transport) => {
            let params = row.params.clone().with("transport", transport);
            let total = rows.iter().find(|other| {
                other.target == target
                    && other.case == row.case
                    && other.params == params
                    && other.metric == metric_name
            });
            let share =
                row_of(metric_name).zip(total).map(|(part, total)| part.median * 100.0 / total.median);
            or_dash(share.map(|share| format!("{} %", metric::format_number(share))))
        }
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| metric::ABSENT.to_owned())
}

fn range(row: &FigureRow) -> String {
    let noisy = if row.summary().is_noisy() { " !" } else { "" };
    format!(
        "{} … {}{noisy}",
        metric::format_metric(&row.metric, row.min),
        metric::format_metric(&row.metric, row.max)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;
    use crate::stats::Summary;

    fn rows(case: &str) -> RowSet {
        let mut rows = RowSet::default();
        let params = Params::new().with("transport", "tcp").with("bytes", 64u64).with("batch", 8u64);
        for (metric, value) in [("msgs_per_s", 2e6), ("bytes_per_s", 128e6)] {
            let summary = Summary::of(&[value]).unwrap();
            rows.push(FigureRow::new("spot", case, "dunlin", &params, metric, summary, true)).unwrap();
        }
        rows
    }

    #[test]
    fn table_has_one_line_for_each_set_of_parameters() {
        let tables = tables(SPOT, &rows("throughput"));
        assert_eq!(tables.len(), 1);
        let text = tables[0].text(false);
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(
            text.contains("dunlin tcp batch=8") && text.contains("2.00 M/s") && text.contains("128 MB/s"),
            "{text}"
        );
    }

    #[test]
    fn missing_value_is_printed_as_a_dash() {
        let tables = tables(SPOT, &rows("latency"));
        let text = tables[0].text(false);
        let line = text.lines().last().unwrap();
        assert_eq!(line.matches(metric::ABSENT).count(), 5, "{text}");
    }

    #[test]
    fn benchmark_without_a_layout_is_printed_as_one_plain_table() {
        let tables = tables(SPOT, &rows("memory"));
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0].text(false).lines().count(), 6);
    }
}
