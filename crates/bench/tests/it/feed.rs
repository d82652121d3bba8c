//! Tests of suite `feed`, which make small runs. The tests check deliveries, losses and repairs, but no speeds.

use dunlin_bench::FigureRow;

use crate::runs::rows_of;

fn figure(rows: &[FigureRow], metric: &str) -> f64 {
    rows.iter().find(|row| row.metric == metric).unwrap_or_else(|| panic!("no {metric}")).median
}

fn scenario(case: &str, more: &[&str]) -> Vec<FigureRow> {
    scenario_over("inproc", case, more)
}

fn scenario_over(transport: &str, case: &str, more: &[&str]) -> Vec<FigureRow> {
    let folder = tempfile::tempdir().unwrap();
    let (case, transport) = (format!("--case={case}"), format!("--transport={transport}"));
    rows_of(folder.path(), &[&["feed", &case, "--time=200ms", &transport], more].concat())
}

/// Checks that each due update was delivered alone, was merged with other updates, or is counted as lost. Updates can
/// be lost because the machine stalls: a subscriber may then receive a snapshot instead of updates.
fn assert_accounted(rows: &[FigureRow], due: f64) {
    let delivered = figure(rows, "deliveries");
    assert!(delivered > 0.0, "{rows:?}");
    assert_eq!(delivered + figure(rows, "merged") + figure(rows, "drops"), due, "{rows:?}");
    assert_eq!((figure(rows, "divergent"), figure(rows, "errors")), (0.0, 0.0), "{rows:?}");
}

#[test]
fn every_published_update_is_applied_or_counted_as_missed() {
    assert_accounted(&scenario("fanout_1x100_1k", &[]), 100.0 * 200.0);
}

#[test]
fn simulated_record_losses_are_detected_and_repaired() {
    assert_healed(&scenario("loss_1x10_1k", &[]));
}

#[test]
fn simulated_record_losses_are_repaired_over_tcp() {
    assert_healed(&scenario_over("tcp", "loss_1x10_1k", &[]));
}

fn assert_healed(rows: &[FigureRow]) {
    assert_accounted(rows, 10.0 * 200.0);
    // A subscriber that received a snapshot may have missed that some records before the snapshot were withheld.
    assert!(figure(rows, "holes") >= 40.0 || figure(rows, "drops") > 0.0, "{rows:?}");
    assert!(figure(rows, "holes") <= figure(rows, "healed"), "{rows:?}");
}

#[test]
fn slow_conflated_client_gets_merged_updates_without_loss() {
    let rows = scenario("slow_client", &["--conflate=yes"]);
    assert!(figure(&rows, "merged") > 0.0 && figure(&rows, "stale_p99_ns") > 0.0, "{rows:?}");
    assert_eq!((figure(&rows, "drops"), figure(&rows, "divergent")), (0.0, 0.0));
}

#[test]
fn slow_client_receives_no_more_updates_than_its_delay_allows() {
    let rows = scenario("slow_client", &["--conflate=no"]);
    let (count, per_s) = (figure(&rows, "deliveries"), figure(&rows, "deliveries_per_s"));
    // Ten subscribers sleep 5 ms after each update. The first update of each subscriber comes before any sleep.
    assert!(count > 10.0, "{rows:?}");
    assert!(per_s <= 10.0 * 200.0 * count / (count - 10.0), "{per_s}/s, {rows:?}");
}
