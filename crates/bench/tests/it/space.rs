//! Tests of suite `space`, which make small runs with real processes. No entity may be lost, duplicated or changed.
//! Speeds are not checked.

use dunlin_bench::FigureRow;

use crate::runs::rows_of;

fn rows(cases: &[&str]) -> Vec<FigureRow> {
    let folder = tempfile::tempdir().unwrap();
    let cases: Vec<String> = cases.iter().map(|case| format!("--case={case}")).collect();
    let args: Vec<&str> = ["space"].into_iter().chain(cases.iter().map(String::as_str)).collect();
    rows_of(folder.path(), &args)
}

fn count_rows(rows: &[FigureRow], case: &str, metric: &str) -> usize {
    rows.iter().filter(|row| row.case == case && row.metric == metric && row.median > 0.0).count()
}

#[test]
fn handovers_between_processes_lose_no_entity() {
    let rows = rows(&["handover", "handover_saturating", "concurrent", "latency"]);
    assert_eq!(count_rows(&rows, "handover_saturating", "handovers_per_s"), 1);
    let crossed = rows.iter().find(|row| row.metric == "crossed_share").unwrap();
    assert!(crossed.median > 0.9, "{crossed:?}");
    assert_eq!(count_rows(&rows, "handover", "offered_per_s"), 3);
    assert!(rows.iter().any(|row| row.case == "concurrent" && row.metric == "ticks_taken"));
    let slow = rows.iter().find(|row| {
        row.case == "latency" && row.params.contains_all(&[("rtt_ms", "50")]) && row.metric == "p50_ns"
    });
    // A handover sends four messages, and each is delayed by 25 ms. On any machine, a handover therefore takes at least
    // 100 ms.
    assert!(slow.is_none_or(|slow| slow.median >= 100e6), "{slow:?}");
    assert!(rows.iter().filter(|row| row.metric == "lost").all(|row| row.median == 0.0 && row.checked));
}

#[test]
fn every_space_benchmark_is_measured_and_checked() {
    let rows = rows(&["capacity", "cpu", "bucket", "ghosts", "flock", "crowd", "index"]);
    for (case, metric, count) in [
        ("capacity", "p99_ns", 2),
        ("cpu", "cpu_share", 2),
        ("bucket", "p99_ns", 2),
        ("ghosts", "ghosts_per_s", 2),
        ("flock", "ticks_per_s", 3),
        ("crowd", "cuts", 1),
        ("index", "recall", 3),
    ] {
        assert_eq!(count_rows(&rows, case, metric), count, "{case} {metric}: {rows:?}");
    }
    for case in ["capacity", "cpu", "bucket"] {
        // Worlds have one standby for each region by default. For comparison, each case is also measured without
        // standbys.
        for standbys in ["0", "1"] {
            let is_of =
                |row: &&FigureRow| row.case == case && row.params.contains_all(&[("standbys", standbys)]);
            assert!(rows.iter().any(|row| is_of(&row) && row.metric == "ticks_per_s"), "{case} {standbys}");
        }
    }
}
