//! Tests of the command `demo --space`, which runs a world on three processes.

use crate::program::run;

mod long {
    use super::run;

    /// `demo --space` checks the entities itself, and fails if one is lost or duplicated.
    #[test]
    fn world_loses_no_entity_when_a_process_is_killed() {
        let outcome = run(&[
            "demo",
            "--space",
            "--data",
            "/nonexistent",
            "--allow-generated",
            "--once",
            "--flock",
            "600",
        ]);
        let out = outcome.done();
        for text in
            ["is killed", "continues in process", "owns a region", "600 of 600 entities accounted for"]
        {
            assert!(out.contains(text), "{text}: {out}");
        }
    }
}

#[test]
fn world_demo_without_recordings_is_refused() {
    let outcome = run(&["demo", "--space", "--data", "/nonexistent", "--once"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("cargo xtask data"), "{outcome:?}");
}
