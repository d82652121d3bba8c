//! Worlds over processes: small, killed and come back, everybody counted from outside.

use crate::dunlin::run;

/// The demo is the test: it fails where a single entity is lost or doubled.
#[test]
fn a_world_of_three_processes_outlives_one_of_them_with_everybody() {
    let outcome =
        run(&["demo", "--space", "--data", "/nonexistent", "--allow-generated", "--once", "--flock", "600"]);
    let out = outcome.done();
    for said in
        ["is killed", "goes on in process", "owns a region again", "600 of 600 entities accounted for"]
    {
        assert!(out.contains(said), "{said}: {out}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let outcome = run(&["demo", "--space", "--data", "/nonexistent", "--once"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("cargo xtask data"), "{outcome:?}");
    let outcome = run(&["space", "run", "--listen", "0.0.0.0:0"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("--url"), "{outcome:?}");
}
