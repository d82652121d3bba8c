//! Commands that need no node, and what every command has in common.

use std::io::Read;
use std::process::Stdio;

use crate::dunlin::{dunlin, run};

#[test]
fn exit_codes_tell_refused_from_failed() {
    assert_eq!(run(&["errors", "NO_SUCH_ERROR"]).code, Some(1));
    assert_eq!(run(&["no-such-command"]).code, Some(2));
    let nobody = run(&["pub", "a", "b", "--url", "dunlin://127.0.0.1:9"]);
    assert_eq!(nobody.code, Some(2));
    assert!(nobody.err.contains("dunlin://127.0.0.1:9") && nobody.err.contains("dunlin dev"), "{nobody:?}");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let mut child =
        dunlin(&["errors", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

#[test]
fn completions_and_manual_pages_come_out_for_every_shell_and_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(run(&["completions", shell]).done().contains("dunlin"), "{shell}");
    }
    let directory = tempfile::tempdir().unwrap();
    run(&["man", "--dir", directory.path().to_str().unwrap()]).done();
    for page in ["dunlin.1", "dunlin-sub.1", "dunlin-topics-create.1"] {
        assert!(directory.path().join(page).exists(), "{page}");
    }
    assert!(!directory.path().join("dunlin-demo-child.1").exists(), "hidden commands have no page");
}

#[test]
fn tables_are_objects_with_json() {
    let out = run(&["errors", "--json"]).done();
    let rows: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().any(|row| row["name"] == "NO_TOPIC" && row["number"] == 21));
}
