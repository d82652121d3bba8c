//! Tests of the sources of configuration values: defaults, the file, environment variables and flags.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::dunlin::{dunlin, run, run_with};

#[test]
fn flag_overrides_variable_and_variable_overrides_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node.toml");
    std::fs::write(&file, "heartbeat_ms = 1\nthreads = 1\nspin = true\n[retention]\nrecords = 5\n").unwrap();
    let file = file.to_str().unwrap();
    let mut command = dunlin(&["config", "show", "--json", "--config", file, "--heartbeat-ms", "3"]);
    command.env("DUNLIN_HEARTBEAT_MS", "2").env("DUNLIN_THREADS", "2");
    let out = run_with(command, b"").done();
    let setting = |key: &str| {
        let rows = out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let row = rows.into_iter().find(|row| row["key"] == key).unwrap();
        (row["value"].as_str().unwrap().to_owned(), row["origin"].as_str().unwrap().to_owned())
    };
    let expected = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(setting("heartbeat_ms"), expected("3", "--heartbeat-ms"));
    assert_eq!(setting("threads"), expected("2", "DUNLIN_THREADS"));
    assert_eq!(setting("spin"), expected("true", &format!("{file}:3")));
    assert_eq!(setting("retention.records"), expected("5", &format!("{file}:5")));
    assert_eq!(setting("log").1, "default");
}

#[test]
fn variable_that_is_not_utf8_is_refused() {
    let mut command = dunlin(&["config", "show"]);
    command.env("DUNLIN_DATA_DIR", OsStr::from_bytes(b"/data\xff"));
    let outcome = run_with(command, b"");
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains("the variable DUNLIN_DATA_DIR is not valid UTF-8"), "{outcome:?}");
}

#[test]
fn unknown_key_in_a_file_suggests_the_nearest_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node.toml");
    std::fs::write(&file, "[retention]\nbyte = 5\n").unwrap();
    let outcome = run(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome
            .err
            .contains("node.toml:2: there is no key \"retention.byte\"; did you mean \"retention.bytes\"?"),
        "{outcome:?}"
    );
}

#[test]
fn example_configuration_in_folder_deploy_is_valid() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/node.toml");
    let outcome = run(&["config", "show", "--json", "--config", file]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("/etc/dunlin/users.toml"), "{outcome:?}");
}

#[test]
fn pipe_in_place_of_a_configuration_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    let status = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(status.success());
    let pipe = pipe.to_str().unwrap();
    for arguments in [
        &["config", "show", "--config", pipe][..],
        &["serve", "--config", pipe],
        &["user", "--users-file", pipe, "list"],
        &["feed", "serve", "--config", pipe],
    ] {
        let outcome = run(arguments);
        assert_ne!(outcome.code, Some(0), "{arguments:?}: {outcome:?}");
        assert!(outcome.err.contains("the path is not a regular file"), "{arguments:?}: {outcome:?}");
    }
}
