//! Tests of `dunlin pub` and `dunlin sub`, with a node over TCP.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::thread;

use dunlin_wait::until;
use serde_json::Value;

use crate::dunlin::{Node, Outcome, read_stderr_until, signal};

#[test]
fn texts_lines_and_files_arrive_unchanged() {
    let node = Node::start();
    node.run(&["pub", "ticks", "one", "two words"]).done();
    let outcome = node.run_with(&["pub", "ticks"], b"three\nfour\r\n");
    assert!(outcome.err.contains("published 2 records to ticks"), "{outcome:?}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("blob");
    std::fs::write(&file, b"\x00\xff\n").unwrap();
    node.run(&["pub", "ticks", "--file", file.to_str().unwrap()]).done();

    let read = |more: &[&str]| {
        let command = [&["sub", "ticks", "--from", "earliest", "--count", "5"], more].concat();
        node.run(&command).done()
    };
    assert_eq!(read(&[]), "1 one\n2 two words\n3 three\n4 four\\r\n5 \\u{0}\\xff\\n\n");
    assert!(read(&["--format", "raw"]).starts_with("one\ntwo words\nthree\nfour\r\n"));
    assert_eq!(read(&["--format", "{seq}={payload};", "--delimiter", ""]).split(';').next(), Some("1=one"));
    let last: Value = serde_json::from_str(read(&["--json"]).lines().last().unwrap()).unwrap();
    assert_eq!((&last["seq"], &last["payload_base64"]), (&Value::from(5), &Value::from("AP8K")));
}

#[test]
fn two_hundred_thousand_lines_arrive_in_order() {
    let node = Node::start();
    let lines: String = (1..=200_000).map(|line| format!("line {line}\n")).collect();
    node.run_with(&["pub", "lines"], lines.as_bytes()).done();
    let out =
        node.run(&["sub", "lines", "--from", "earliest", "--count", "200000", "--format", "raw"]).done();
    assert!(out == lines, "every line, in order");
}

#[test]
fn records_of_several_patterns_are_printed_with_their_subject() {
    let node = Node::start();
    for subject in ["orders.eu", "orders.us", "stock.eu"] {
        node.run(&["pub", subject, "x"]).done();
    }
    let out = node.run(&["sub", "orders.*", "stock.>", "--from", "earliest", "--count", "3"]).done();
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["orders.eu 1 x", "orders.us 1 x", "stock.eu 1 x"]);
}

#[test]
fn slow_subscriber_gets_a_lag_warning_and_exact_gaps() {
    let node = Node::start_with(&["--retention-bytes", "64KiB"]);
    node.run(&["pub", "ticks", "first"]).done();
    let slow = ["sub", "ticks", "--from", "earliest", "--sleep", "1ms", "--on-gap", "newest", "--json"];
    let slow = [&slow[..], &["--idle", "2s"]].concat();
    let mut slow = node.command(&slow).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(slow.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("\"first\""), "the subscriber reads the first record");
    // The records have more bytes than the client requests in advance. Some of the records therefore leave the log
    // before the subscriber has read them.
    node.run(&["pub", "ticks", &"x".repeat(500), "--repeat", "20000"]).done();

    let (mut next, mut gaps) = (2, 0);
    for line in lines.map(Result::unwrap) {
        let event: Value = serde_json::from_str(&line).unwrap();
        match event["event"].as_str().unwrap() {
            "record" => {
                assert_eq!(event["seq"], next, "{line}");
                next += 1;
            }
            "gap" => {
                assert_eq!(event["first"], next, "{line}");
                next = event["last"].as_u64().unwrap() + 1;
                gaps += 1;
            }
            "lagging" => {}
            other => panic!("{other}: {line}"),
        }
    }
    assert!(gaps > 0, "64 KiB cannot hold 10 MB");
    assert_eq!(next, 20_002, "seen or told, to the last record");
    assert_eq!(slow.wait().unwrap().code(), Some(0));
}

#[test]
fn dunlin_sub_exits_with_1_at_a_gap_if_option_on_gap_is_fail() {
    let node = Node::start_with(&["--retention-bytes", "64KiB"]);
    let first = node.run(&["pub", "ticks", "first"]).err;
    let first = first.trim().rsplit(' ').next().unwrap();
    node.run(&["pub", "ticks", &"x".repeat(500), "--repeat", "1000", "--quiet"]).done();
    let outcome = node.run(&["sub", "ticks", "--from", first, "--on-gap", "fail", "--format", "{seq}"]);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""), "{outcome:?}");
    assert!(outcome.err.contains("GAP ") && outcome.err.contains("end at a gap"), "{outcome:?}");
}

#[test]
fn publish_with_an_outdated_expected_sequence_is_refused() {
    let node = Node::start();
    node.run(&["pub", "config", "v1", "--expect-seq", "0"]).done();
    let outcome = node.run(&["pub", "config", "v2", "--expect-seq", "0"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("last sequence number is 1"), "{outcome:?}");
}

#[test]
fn lost_connection_is_reported_and_ctrl_c_ends_the_wait() {
    let node = Node::start();
    node.run(&["pub", "ticks", "one"]).done();
    let mut sub = node.command(&["sub", "ticks", "--from", "earliest"]);
    let mut sub = sub.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 6];
    sub.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"1 one\n");
    drop(node);
    let mut line = String::new();
    BufReader::new(sub.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("connection lost:"), "{line}");
    signal("INT", sub.id());
    assert_eq!(Outcome::of(sub).code, Some(0));
}

#[test]
fn dunlin_sub_survives_a_killed_node_and_reports_the_new_epoch() {
    let node = Node::start();
    node.run(&["pub", "ticks", "before"]).done();
    let mut sub = node.command(&["sub", "ticks", "--from", "earliest", "--json"]);
    let mut sub = sub.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut events = BufReader::new(sub.stdout.take().unwrap())
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    assert_eq!(events.next().unwrap()["payload"], "before");

    let address = node.url.strip_prefix("dunlin://").unwrap().to_owned();
    node.kill();
    let node = Node::start_with(&["--listen", &address]);
    node.run(&["pub", "ticks", "after"]).done();
    let change = events.next().unwrap();
    assert_eq!((&change["event"], &change["last_seen"]), (&Value::from("epoch_changed"), &Value::from(1)));
    assert_eq!(change["known_through"], Value::Null, "the killed node's last record is unknown");
    assert_eq!(events.next().unwrap()["payload"], "after");
    signal("INT", sub.id());
    assert_eq!(sub.wait().unwrap().code(), Some(0));
}

#[test]
fn dunlin_sub_succeeds_if_its_output_pipe_is_closed() {
    let node = Node::start();
    let mut sub =
        node.command(&["sub", "ticks"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(sub.stdout.take());
    until("sub ends", || {
        node.run(&["pub", "ticks", "tick", "--quiet"]).done();
        sub.try_wait().unwrap().is_some()
    });
    let outcome = Outcome::of(sub);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
}

#[test]
fn dunlin_pub_survives_a_node_restart_and_prints_a_summary() {
    let node = Node::start();
    let mut publish = node.command(&["pub", "ticks"]);
    let mut publish =
        publish.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = publish.stdin.take().unwrap();
    writeln!(input, "before").unwrap();
    node.run(&["sub", "ticks", "--from", "earliest", "--count", "1"]).done();
    let address = node.url.strip_prefix("dunlin://").unwrap().to_owned();
    node.kill();
    writeln!(input, "meanwhile").unwrap();
    read_stderr_until(&mut publish, "connection lost:");
    let node = Node::start_with(&["--listen", &address]);
    drop(input);
    let outcome = Outcome::of(publish);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.err.contains("published 2 records to ticks"), "{outcome:?}");
    let read = node.run(&["sub", "ticks", "--from", "earliest", "--count", "1", "--format", "{payload}"]);
    assert_eq!(read.done(), "meanwhile\n");
}

#[test]
fn dunlin_pub_prints_its_summary_after_ctrl_c() {
    let node = Node::start();
    let mut publish = node.command(&["pub", "ticks", "--json"]);
    let mut publish =
        publish.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = publish.stdin.take().unwrap();
    writeln!(input, "one").unwrap();
    node.run(&["sub", "ticks", "--from", "earliest", "--count", "1"]).done();
    signal("INT", publish.id());
    let summary: Value = serde_json::from_str(&Outcome::of(publish).done()).unwrap();
    assert_eq!((&summary["acknowledged"], &summary["seq"]), (&Value::from(1), &Value::from(1)));
}

#[test]
fn interrupted_dunlin_pub_counts_unacknowledged_records() {
    let node = Node::start();
    let mut publish = node.command(&["pub", "ticks"]);
    let mut publish =
        publish.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = publish.stdin.take().unwrap();
    writeln!(input, "one").unwrap();
    node.run(&["sub", "ticks", "--from", "earliest", "--count", "1"]).done();
    node.kill();
    writeln!(input, "two").unwrap();
    read_stderr_until(&mut publish, "connection lost:");
    signal("INT", publish.id());
    let outcome = Outcome::of(publish);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains("published 1 record to ticks"), "{outcome:?}");
    assert!(outcome.err.contains("not acknowledged: 1 more"), "{outcome:?}");
}

#[test]
fn ctrl_c_ends_a_sleeping_dunlin_sub_at_once() {
    let node = Node::start();
    node.run(&["pub", "ticks", "one"]).done();
    let mut sub = node.command(&["sub", "ticks", "--from", "earliest", "--sleep", "1h"]);
    let mut sub = sub.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 6];
    sub.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    signal("INT", sub.id());
    assert_eq!(Outcome::of(sub).code, Some(0));
}

#[test]
fn invalid_subject_is_refused_with_reason_and_advice() {
    let node = Node::start();
    for (subject, reason) in [("a.*", "'*'"), ("$sys.x", "reserved"), ("a..b", "empty token")] {
        let outcome = node.run(&["pub", subject, "x"]);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.err.contains(reason) && outcome.err.contains("dunlin errors SUBJECT"), "{outcome:?}");
    }
}

#[test]
fn dunlin_pub_waits_for_room_and_sends_each_record_once() {
    let node = Node::start();
    let small = ["--reliable", "--retention-bytes", "16KiB", "--wait-ms-max", "20"];
    node.run(&[&["topics", "create", "jobs"], &small[..]].concat()).done();
    let slow = ["sub", "jobs", "--registered", "--name", "slow", "--from", "earliest", "--sleep", "1h"];
    let mut slow = node.command(&slow).stdout(Stdio::piped()).spawn().unwrap();
    let lines: String = (1..=5_000).map(|line| format!("line {line}\n")).collect();
    let mut first = String::new();
    node.run(&["pub", "jobs", "line 0"]).done();
    BufReader::new(slow.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "1 line 0\n", "the subscriber has started and sleeps");
    let impatient = node.run_with(&["pub", "jobs", "--patience", "0s", "--json"], lines.as_bytes());
    assert_eq!(impatient.code, Some(1), "{impatient:?}");
    let summary: Value = serde_json::from_str(&impatient.out).unwrap();
    let before = summary["acknowledged"].as_u64().unwrap() + 1;

    let mut publisher = node.command(&["pub", "jobs"]);
    let publisher = publisher.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut publisher = publisher.spawn().unwrap();
    let mut input = publisher.stdin.take().unwrap();
    let all = lines.clone();
    let writer = thread::spawn(move || input.write_all(lines.as_bytes()));
    let mut messages = BufReader::new(publisher.stderr.take().unwrap()).lines().map(Result::unwrap);
    let no_room = messages.next().unwrap();
    assert!(no_room.contains("no room:") && no_room.contains("slow"), "{no_room}");
    slow.kill().unwrap();
    slow.wait().unwrap();
    let summary_line = messages.next().unwrap();
    assert!(summary_line.starts_with("published 5,000 records to jobs"), "{summary_line}");
    assert!(publisher.wait().unwrap().success());
    writer.join().unwrap().unwrap();
    let last = format!("-{}", before + 5_000);
    assert!(summary_line.ends_with(&last), "{summary_line}: each once");
    let tail = node.run(&["sub", "jobs", "--from", "earliest", "--idle", "100ms", "--format", "raw"]).done();
    assert!(!tail.is_empty() && all.contains(&tail), "in order");
}

#[test]
fn dunlin_sub_ends_when_its_output_pipe_is_closed() {
    let node = Node::start();
    node.run(&["pub", "ticks", "one", "two"]).done();
    let sub = ["sub", "ticks", "--from", "earliest", "--format", "{payload}"];
    let mut child = node.command(&sub).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "one\n");
    // The test closes its end of the pipe, as `head -1` does, and publishes nothing after that.
    drop(out);
    let ended = Outcome::of(child);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}
