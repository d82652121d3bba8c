//! The scenarios of suite `feed`, small: what comes, what is lost and repaired; never how fast.

use dunlin_bench::Row;

use crate::runs::rows_of;

fn figure(rows: &[Row], metric: &str) -> f64 {
    rows.iter().find(|row| row.metric == metric).unwrap_or_else(|| panic!("no {metric}")).median
}

fn scenario(case: &str, more: &[&str]) -> Vec<Row> {
    over("inproc", case, more)
}

fn over(transport: &str, case: &str, more: &[&str]) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    let (case, transport) = (format!("--case={case}"), format!("--transport={transport}"));
    rows_of(folder.path(), &[&["feed", &case, "--time=200ms", &transport], more].concat())
}

#[test]
fn every_update_of_a_paced_source_is_applied_to_every_clients_book() {
    let rows = scenario("fanout_1x100_1k", &[]);
    assert_eq!(figure(&rows, "deliveries_per_s"), 100_000.0);
    assert_eq!(
        (figure(&rows, "drops"), figure(&rows, "divergent"), figure(&rows, "errors")),
        (0.0, 0.0, 0.0)
    );
}

#[test]
fn what_is_withheld_is_noticed_and_comes_after_all() {
    let rows = scenario("loss_1x10_1k", &[]);
    assert!(figure(&rows, "holes") >= 40.0, "{rows:?}");
    assert_eq!(figure(&rows, "holes"), figure(&rows, "healed"));
    assert_eq!((figure(&rows, "drops"), figure(&rows, "divergent")), (0.0, 0.0));
}

#[test]
fn over_connections_it_is_just_so() {
    let rows = over("tcp", "loss_1x10_1k", &[]);
    assert!(figure(&rows, "holes") >= 40.0, "{rows:?}");
    assert_eq!((figure(&rows, "drops"), figure(&rows, "divergent")), (0.0, 0.0));
}

#[test]
fn a_slow_client_that_is_conflated_lacks_nothing() {
    let rows = scenario("slow_client", &["--conflate=yes"]);
    assert!(figure(&rows, "merged") > 0.0 && figure(&rows, "stale_p99_ns") > 0.0, "{rows:?}");
    assert_eq!((figure(&rows, "drops"), figure(&rows, "divergent")), (0.0, 0.0));
}
