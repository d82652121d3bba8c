//! Tests of suite `control`, which make small runs with real processes and a real disk. Acknowledged writes are read
//! back. Speeds are not checked.

use dunlin_bench::FigureRow;

use crate::runs::rows_of;

fn rows(cases: &[&str], params: &[&str]) -> Vec<FigureRow> {
    let folder = tempfile::tempdir().unwrap();
    let cases: Vec<String> = cases.iter().map(|case| format!("--case={case}")).collect();
    let cases = cases.iter().map(String::as_str);
    let args: Vec<&str> =
        ["control", "--nodes=3"].into_iter().chain(cases).chain(params.iter().copied()).collect();
    rows_of(folder.path(), &args)
}

fn count(rows: &[FigureRow], case: &str, metric: &str) -> usize {
    rows.iter().filter(|row| row.case == case && row.metric == metric && row.median > 0.0).count()
}

#[test]
fn control_benchmark_measures_writes_and_reads() {
    let rows = rows(&["put", "get"], &["--load=full", "--via=leader", "--in_flight=256"]);
    assert_eq!((count(&rows, "put", "ops_per_s"), count(&rows, "get", "ops_per_s")), (1, 1), "{rows:?}");
}

mod long {
    use super::*;

    #[test]
    fn all_control_operations_are_measured_at_every_load() {
        let rows = rows(&["put", "get", "cas", "batch", "range"], &[]);
        // Puts are measured in four ways: through the leader at the highest rate, through the leader with a single
        // request in flight, through all nodes at the highest rate, and at half of the highest rate. Each other case is
        // measured in two ways: at the highest rate, and at half of it.
        for (case, points) in [("put", 4), ("get", 2), ("cas", 2), ("batch", 2), ("range", 2)] {
            assert_eq!(count(&rows, case, "ops_per_s"), points, "{case}: {rows:?}");
        }
        assert_eq!(count(&rows, "put", "commit_avg_ns"), 1);
    }
}

#[test]
fn writes_succeed_again_after_each_kill_of_a_leader() {
    let rows = rows(&["failover"], &[]);
    assert_eq!(count(&rows, "failover", "kills"), 1);
    assert_eq!(count(&rows, "failover", "election_avg_ns"), 1);
}
