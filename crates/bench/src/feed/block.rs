//! Prints the results of each scenario in the text format of the benchmark document of MDD-Sim, another system for
//! market data. The document's fields come first, and the fields for Dunlin's own goals follow.

use std::fmt::Write;

use crate::metric;
use crate::row::{FigureRow, RowSet};

/// Returns one block of text for each scenario in the run. The figures are medians over the rounds of the run.
pub fn blocks(rows: &RowSet) -> String {
    let scenarios = rows.iter().filter(|row| row.metric == "duration_ns");
    scenarios.map(|row| block(row, rows)).collect()
}

fn block(row: &FigureRow, rows: &RowSet) -> String {
    let same = |other: &&FigureRow| {
        other.case == row.case && other.target == row.target && other.params == row.params
    };
    let of = |metric: &str| rows.iter().filter(same).find(|row| row.metric == metric).map(|row| row.median);
    let rounded = |metric: &str| of(metric).map_or_else(absent, |value| format!("{value:.0}"));
    let exact = |metric: &str| of(metric).map_or_else(absent, |value| format!("{value:.2}"));
    let param = |name: &str| row.params.get(name).map_or_else(String::new, ToString::to_string);
    let host = if param("transport") == "tcp" { "127.0.0.1" } else { "inprocess" };
    let seconds = row.median / 1e9;
    let mut text = String::new();
    // A write to a string never fails.
    let _ = writeln!(text, "=== {} {} ===", row.case, row.params);
    let _ = writeln!(
        text,
        "host={host} clients={} instruments={} depth={} duration={}s",
        param("clients"),
        rounded("instruments"),
        rounded("depth"),
        metric::format_number(seconds)
    );
    let _ = writeln!(text, "throughput_incrementals_per_sec={}", exact("deliveries_per_s"));
    let (p50, p99, p999) = (rounded("sent_p50_ns"), rounded("sent_p99_ns"), rounded("sent_p999_ns"));
    let _ = writeln!(text, "latency_ns_p50={p50} latency_ns_p99={p99} latency_ns_p999={p999}");
    let (resyncs, errors, drops) = (rounded("resyncs"), rounded("errors"), rounded("drops"));
    let _ = writeln!(text, "total_resyncs={resyncs} total_errors={errors} total_drops={drops}");
    let _ = writeln!(text, "server_incremental_rate_per_sec={}", exact("source_per_s"));
    text + &ours(&rounded, &exact, &of) + "\n"
}

fn absent() -> String {
    metric::ABSENT.to_owned()
}

fn ours(
    rounded: &dyn Fn(&str) -> String,
    exact: &dyn Fn(&str) -> String,
    of: &dyn Fn(&str) -> Option<f64>,
) -> String {
    let mut text = format!(
        "intended_latency_ns_p50={} intended_latency_ns_p99={} intended_latency_ns_p999={} source_slip_ns_max={}\n",
        rounded("intended_p50_ns"),
        rounded("intended_p99_ns"),
        rounded("intended_p999_ns"),
        rounded("slip_ns")
    );
    if of("stale_p50_ns").is_some() {
        let _ = writeln!(
            text,
            "staleness_ns_p50={} staleness_ns_p99={} staleness_p99_by_processing={} merged={}",
            rounded("stale_p50_ns"),
            rounded("stale_p99_ns"),
            exact("stale_p99_by_processing"),
            rounded("merged")
        );
    }
    if of("direct_p50_ns").is_some() {
        let [p50, p99, p999] = ["direct_p50_ns", "direct_p99_ns", "direct_p999_ns"].map(rounded);
        let _ = writeln!(
            text,
            "direct_latency_ns_p50={p50} direct_latency_ns_p99={p99} direct_latency_ns_p999={p999}"
        );
    }
    let _ = writeln!(
        text,
        "deliveries={} delivered_within_sec={} holes={} healed={} divergent={} node_cpu_sec={} client_cpu_sec={}",
        rounded("deliveries"),
        of("read_ns").map_or_else(absent, |ns| format!("{:.2}", ns / 1e9)),
        rounded("holes"),
        rounded("healed"),
        rounded("divergent"),
        exact("node_cpu_s"),
        exact("client_cpu_s")
    );
    text
}
