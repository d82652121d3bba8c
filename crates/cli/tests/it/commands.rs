//! Tests of commands that need no node, and of features that all commands have.

use std::io::Read;
use std::process::Stdio;

use dunlin_wait::find;

use crate::dunlin::{Node, RunningProgram, dunlin, run};

#[test]
fn exit_codes_distinguish_refusals_from_failures() {
    assert_eq!(run(&["errors", "NO_SUCH_ERROR"]).code, Some(1));
    assert_eq!(run(&["no-such-command"]).code, Some(2));
    let unreachable = run(&["pub", "a", "b", "--url", "dunlin://127.0.0.1:9"]);
    assert_eq!(unreachable.code, Some(2));
    assert!(
        unreachable.err.contains("dunlin://127.0.0.1:9") && unreachable.err.contains("dunlin dev"),
        "{unreachable:?}"
    );
}

#[test]
fn every_command_skips_a_dead_first_address() {
    let node = Node::start();
    let live = node.url.strip_prefix("dunlin://").unwrap();
    let url = format!("dunlin://127.0.0.1:9,{live}");
    for command in [
        "topics create orders",
        "topics list",
        "topics describe orders",
        "pub orders one",
        "sub orders --from earliest --count 1",
        "log dump orders",
        "subscriptions",
        "kv put key 1",
        "kv get key",
        "lock gate -- true",
        "task submit count before",
        "task queues",
        "task workers",
        "top --once",
    ] {
        let (options, program) = command.split_once(" -- ").unwrap_or((command, ""));
        let mut words: Vec<&str> = options.split(' ').chain(["--url", &url]).collect();
        if !program.is_empty() {
            words.extend(["--", program]);
        }
        let outcome = run(&words);
        assert_eq!(outcome.code, Some(0), "{command}: {outcome:?}");
    }
}

/// If the node refuses a record, the advice must not say that the node has a bug.
#[test]
fn refused_record_gets_the_advice_of_its_error_code() {
    let node = Node::start();
    run(&["topics", "create", "md.X", "--reducer", "book", "--url", &node.url]).done();
    let refused = run(&["pub", "md.X", "hello", "--url", &node.url]);
    assert!(refused.code == Some(1) && refused.err.contains("dunlin errors REDUCER"), "{refused:?}");
}

#[test]
fn subcommand_without_its_parent_gets_a_hint() {
    let outcome = run(&["status"]);
    assert!(
        outcome.code == Some(2) && outcome.err.contains("did you mean `dunlin cluster status`?"),
        "{outcome:?}"
    );
    assert!(!run(&["no-such-command"]).err.contains("did you mean"));
}

#[test]
fn early_close_of_stdout_is_no_failure() {
    let mut child =
        dunlin(&["errors", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

#[test]
fn completions_and_manual_pages_are_generated() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(run(&["completions", shell]).done().contains("dunlin"), "{shell}");
    }
    let directory = tempfile::tempdir().unwrap();
    run(&["man", "--dir", directory.path().to_str().unwrap()]).done();
    for page in ["dunlin.1", "dunlin-sub.1", "dunlin-topics-create.1"] {
        assert!(directory.path().join(page).exists(), "{page}");
    }
    assert!(!directory.path().join("dunlin-task-warden.1").exists(), "hidden commands have no page");
}

#[test]
fn help_subcommand_prints_the_help_of_a_command() {
    assert_eq!(run(&["help", "sub"]).done(), run(&["sub", "--help"]).done());
}

#[test]
fn error_for_an_unknown_feed_configuration_lists_known_ones() {
    let outcome = run(&["feed", "serve", "--config", "nosuch"]);
    assert!(outcome.err.contains("baseline_1x1_10k"), "{outcome:?}");
}

#[test]
fn json_option_prints_tables_as_objects() {
    let out = run(&["errors", "--json"]).done();
    let rows: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().any(|row| row["name"] == "NO_TOPIC" && row["number"] == 21));
}

#[test]
fn json_option_prints_errors_as_objects() {
    let outcome = run(&["--json", "--url", "dunlin://127.0.0.1:1", "topics", "list"]);
    assert_eq!(outcome.code, Some(2));
    let object: serde_json::Value = serde_json::from_str(outcome.err.trim()).unwrap();
    assert_eq!(object["exit_code"], 2);
    assert!(object["error"].as_str().unwrap().contains("cannot reach a node"), "{object}");
    let node = Node::start();
    let outcome = node.run(&["topics", "describe", "nothing", "--json"]);
    let object: serde_json::Value = serde_json::from_str(outcome.err.trim()).unwrap();
    assert_eq!((&object["code"], &object["exit_code"]), (&"NO_TOPIC".into(), &1.into()), "{object}");
    assert!(object["advice"].as_str().unwrap().contains("dunlin topics list"), "{object}");
}

#[test]
fn subscriptions_are_listed_by_descending_lag() {
    let node = Node::start();
    node.run(&["pub", "ticks", "1", "2", "3"]).done();
    let start_reader = |name: &str, more: &[&str]| -> RunningProgram {
        let arguments = [&["sub", "ticks", "--name", name], more].concat();
        node.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap().into()
    };
    let _readers =
        [start_reader("fast", &[]), start_reader("slow", &["--from", "earliest", "--sleep", "1h"])];
    let rows = find("both are there", || {
        let out = node.run(&["subscriptions", "--json"]).done();
        let rows: Vec<serde_json::Value> =
            out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (rows.len() == 2).then_some(rows)
    });
    assert!(rows.iter().all(|row| row["topic"] == "ticks" && row["missed"] == 0), "{rows:?}");
    assert!(rows[0]["lag"].as_u64() >= rows[1]["lag"].as_u64(), "{rows:?}");
    let table = node.run(&["subscriptions", "ticks", "--sort", "name", "--limit", "1"]).done();
    assert!(table.contains("fast") && !table.contains("slow") && table.contains("and 1 more"), "{table}");
}

#[test]
fn port_in_use_error_suggests_another_address() {
    let node = Node::start();
    let address = node.url.strip_prefix("dunlin://").unwrap();
    for verb in ["dev", "serve"] {
        let outcome = run(&[verb, "--listen", address]);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.err.contains(&format!("another program listens on {address}")), "{outcome:?}");
        assert!(outcome.err.contains("--listen 127.0.0.1:0"), "{outcome:?}");
    }
}

#[test]
fn error_for_an_overlapping_pattern_suggests_topic_deletion() {
    let node = Node::start();
    node.run(&["pub", "orders.eu", "1"]).done();
    let outcome = node.run(&["topics", "create", "orders", "--pattern", "orders.>"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("`dunlin topics delete orders.eu`"), "{outcome:?}");
    node.run(&["topics", "delete", "orders.eu"]).done();
    node.run(&["topics", "create", "orders", "--pattern", "orders.>"]).done();
}
