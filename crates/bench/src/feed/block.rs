//! The document's output block, field for field, of each scenario; what follows its last field is ours.

use std::fmt::Write;

use crate::metric;
use crate::row::{Row, RowSet};

/// The blocks of all scenarios that were run, from the medians over runs.
pub fn blocks(rows: &RowSet) -> String {
    let scenarios = rows.iter().filter(|row| row.metric == "duration_ns");
    scenarios.map(|row| block(row, rows)).collect()
}

fn block(row: &Row, rows: &RowSet) -> String {
    let same =
        |other: &&Row| other.case == row.case && other.target == row.target && other.params == row.params;
    let of = |metric: &str| rows.iter().filter(same).find(|row| row.metric == metric).map(|row| row.median);
    let whole = |metric: &str| of(metric).map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
    let param = |name: &str| row.params.get(name).map_or_else(String::new, ToString::to_string);
    let host = if param("transport") == "tcp" { "127.0.0.1" } else { "inprocess" };
    let seconds = row.median / 1e9;
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "=== {} {} ===", row.case, row.params);
    let _ = writeln!(
        text,
        "host={host} clients={} instruments={} depth={} duration={}s",
        param("clients"),
        whole("instruments"),
        whole("depth"),
        metric::number(seconds)
    );
    let _ =
        writeln!(text, "throughput_incrementals_per_sec={:.2}", of("deliveries_per_s").unwrap_or_default());
    let (p50, p99, p999) = (whole("sent_p50_ns"), whole("sent_p99_ns"), whole("sent_p999_ns"));
    let _ = writeln!(text, "latency_ns_p50={p50} latency_ns_p99={p99} latency_ns_p999={p999}");
    let (resyncs, errors, drops) = (whole("resyncs"), whole("errors"), whole("drops"));
    let _ = writeln!(text, "total_resyncs={resyncs} total_errors={errors} total_drops={drops}");
    let _ = writeln!(text, "server_incremental_rate_per_sec={:.2}", of("source_per_s").unwrap_or_default());
    text + &ours(&whole, &of) + "\n"
}

fn ours(whole: &dyn Fn(&str) -> String, of: &dyn Fn(&str) -> Option<f64>) -> String {
    let mut text = format!(
        "intended_latency_ns_p50={} intended_latency_ns_p99={} intended_latency_ns_p999={} source_slip_ns_max={}\n",
        whole("intended_p50_ns"),
        whole("intended_p99_ns"),
        whole("intended_p999_ns"),
        whole("slip_ns")
    );
    if of("stale_p50_ns").is_some() {
        let _ = writeln!(
            text,
            "staleness_ns_p50={} staleness_ns_p99={} staleness_p99_by_processing={:.2} merged={}",
            whole("stale_p50_ns"),
            whole("stale_p99_ns"),
            of("stale_p99_by_processing").unwrap_or_default(),
            whole("merged")
        );
    }
    if of("direct_p50_ns").is_some() {
        let [p50, p99, p999] = ["direct_p50_ns", "direct_p99_ns", "direct_p999_ns"].map(whole);
        let _ = writeln!(
            text,
            "direct_latency_ns_p50={p50} direct_latency_ns_p99={p99} direct_latency_ns_p999={p999}"
        );
    }
    let seconds = |metric: &str| of(metric).map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    let _ = writeln!(
        text,
        "holes={} healed={} divergent={} node_cpu_sec={} client_cpu_sec={}",
        whole("holes"),
        whole("healed"),
        whole("divergent"),
        seconds("node_cpu_s"),
        seconds("client_cpu_s")
    );
    text
}
