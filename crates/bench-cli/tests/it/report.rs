//! Tests of the command `report`.

use crate::program::run_in;

#[test]
fn report_without_runs_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run_in(folder.path(), &["report"]);
    assert!(outcome.code == Some(1) && outcome.err.contains("--runs"), "{outcome:?}");
}
