//! Tests that run a small demo.

use crate::program::run;

#[test]
fn demo_accounts_for_every_record() {
    let out = run_demo(&["--lines", "6000"]);
    // Whether the slow reader misses lines depends on the machine's speed. Both results are valid.
    let is_valid = |line: &str| line.ends_with(" equal") || line.ends_with(" equal except for gaps");
    assert!(row(&out, "slow", "short.market").is_some_and(is_valid), "{out}");
}

fn row<'a>(out: &'a str, name: &str, topic: &str) -> Option<&'a str> {
    out.lines().find(|line| line.starts_with(name) && line.contains(topic))
}

/// Runs the demo, checks that all records are accounted for, and returns the demo's standard output.
fn run_demo(options: &[&str]) -> String {
    let demo = ["demo", "--data", "/nonexistent", "--allow-generated", "--once", "--speed", "3s"];
    let out = run(&[&demo[..], options].concat()).done();
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines[0].starts_with("GENERATED DATA") && lines[lines.len() - 1].starts_with("GENERATED DATA"),
        "{out}"
    );
    assert!(out.contains("0 unaccounted for"), "{out}");
    assert!(out.contains("SIGKILL") && out.contains("continues after"), "{out}");
    for name in ["in process", "over TCP", "late", "killed"] {
        let row = row(&out, name, " market.bitstamp.btcusd");
        assert!(row.is_some_and(|row| row.ends_with(" equal")), "{name}: {out}");
    }
    assert!(out.contains("7 of 7 replicas equal the expected books"), "{out}");
    out
}

#[test]
fn demo_without_recordings_is_refused() {
    let outcome = run(&["demo", "--data", "/nonexistent", "--once"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("cargo xtask data"), "{outcome:?}");
}

mod long {
    use super::*;

    #[test]
    fn full_length_demo_accounts_for_every_record() {
        let out = run_demo(&[]);
        let slow = row(&out, "slow", "short.market");
        assert!(slow.is_some_and(|row| row.ends_with("equal except for gaps")), "{out}");
    }

    #[test]
    fn all_four_demos_succeed_while_nodes_are_killed() {
        let outcome = run(&[
            "demo",
            "--together",
            "--data",
            "/nonexistent",
            "--allow-generated",
            "--once",
            "--lines",
            "2000",
            "--speed",
            "15s",
            "--kill-every",
            "4s",
            "--flock",
            "600",
        ]);
        let out = outcome.done();
        assert!(out.contains("SIGKILL to node") && out.contains("the cluster recovered after"), "{out}");
        assert!(out.contains("the dashboard, in a browser"), "{out}");
        for part in ["topics", "feeds", "nodes", "space"] {
            let passed = |line: &str| line.split_whitespace().take(2).eq([part, "yes"]);
            assert!(out.lines().any(passed), "{part} in {out}");
        }
        assert!(out.contains("4 of 4 parts passed"), "{out}");
    }
}
