//! Tests of `dunlin sub --group`, whose members share the records of a topic.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use dunlin_wait::{PATIENCE, until};

use crate::dunlin::{Node, Outcome, RunningProgram, signal};

fn member(node: &Node, arguments: &[&str]) -> RunningProgram {
    let arguments = [&["sub", "jobs", "--group", "crew"], arguments].concat();
    node.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap().into()
}

fn wait_for_members(node: &Node, members: usize) {
    let expected = format!("\"members\":{members}");
    until("all have joined", || node.run(&["topics", "describe", "jobs", "--json"]).out.contains(&expected));
}

#[test]
fn each_record_goes_to_one_member_of_the_group() {
    let node = Node::start();
    let mut members = [(); 2].map(|()| member(&node, &["--format", "{payload}"]));
    wait_for_members(&node, 2);
    let lines: String = (0..5_000).map(|line| format!("{line}\n")).collect();
    node.run_with(&["pub", "jobs"], lines.as_bytes()).done();
    let (sender, receiver) = mpsc::channel();
    for member in &mut members {
        let (sender, out) = (sender.clone(), BufReader::new(member.stdout.take().unwrap()));
        thread::spawn(move || out.lines().try_for_each(|line| sender.send(line.unwrap())));
    }
    drop(sender);
    let number = |line: String| line.parse::<u32>().unwrap();
    let first: Vec<u32> = (0..5_000).map(|_| number(receiver.recv_timeout(PATIENCE).unwrap())).collect();
    members.iter().for_each(|member| signal("INT", member.id()));
    // The channel ends when both members have ended.
    let more: Vec<u32> = receiver.iter().map(number).collect();
    assert_eq!((first.iter().collect::<BTreeSet<_>>().len(), more), (5_000, vec![]), "each once");
}

#[test]
fn error_for_a_subject_used_as_a_topic_names_the_right_topic() {
    let node = Node::start();
    node.run(&["topics", "create", "orders", "--pattern", "orders.>"]).done();
    for subjects in ["orders.>", "orders.q"] {
        let refused = node.run(&["sub", subjects, "--group", "g"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains("`dunlin sub orders --group g`"), "{refused:?}");
    }
    for refused in [node.run(&["pub", "orders", "x"]), node.run(&["sub", "orders", "--idle", "1s"])] {
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(
            refused.err.contains("owns the subjects \"orders.>\"") && !refused.err.contains("Create"),
            "{refused:?}"
        );
    }
}

#[test]
fn subscription_list_shows_the_number_of_groups() {
    let node = Node::start();
    let _member = member(&node, &[]);
    wait_for_members(&node, 1);
    let output = node.run(&["subscriptions"]).done();
    assert!(output.contains("and 1 group") && !output.contains("more"), "{output}");
}

#[test]
fn member_takes_no_more_records_than_its_count_option() {
    let node = Node::start();
    node.run(&["pub", "jobs", "one", "two", "three", "four"]).done();
    let take = |count: &str| {
        let all = ["sub", "jobs", "--group", "crew", "--from", "earliest", "--count", count];
        node.run(&all).done()
    };
    assert_eq!(take("1"), "1 one\n");
    assert_eq!(take("2"), "2 two\n3 three\n");
    assert_eq!(take("1"), "4 four\n");
}

#[test]
fn record_claimed_by_a_killed_member_goes_to_another_member() {
    let node = Node::start();
    let mut killed = member(&node, &["--work", "--sleep", "1h"]);
    wait_for_members(&node, 1);
    node.run(&["pub", "jobs", "one", "two"]).done();
    let mut line = String::new();
    BufReader::new(killed.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "1 one\n");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let out = node.run(&["sub", "jobs", "--group", "crew", "--work", "--count", "2"]).done();
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1 (attempt 2) one", "2 two"]);
}

#[test]
fn unacknowledged_record_is_redelivered_after_its_deadline() {
    let node = Node::start();
    node.run(&["pub", "jobs", "one"]).done();
    let command = ["sub", "jobs", "--group", "crew", "--work", "--from", "earliest", "--ack", "never"];
    let more = ["--deadline", "50ms", "--attempts", "2", "--idle", "3s", "--format", "{seq}:{attempt}"];
    assert_eq!(node.run(&[&command[..], &more].concat()).done(), "1:1\n1:2\n");
    let dead = node.run(&["sub", "dead.jobs", "--from", "earliest", "--count", "1", "--format", "{payload}"]);
    assert_eq!(dead.done(), "one\n");
}

#[test]
fn record_is_acknowledged_when_its_command_succeeds() {
    let node = Node::start();
    node.run(&["pub", "jobs", "one", "--key", "k", "--header", "by=ear"]).done();
    let script = "cat; echo \" $DUNLIN_KEY $DUNLIN_HEADER_BY $DUNLIN_ATTEMPT\"; test $DUNLIN_ATTEMPT = 2";
    let group = ["sub", "jobs", "--group", "crew", "--work", "--from", "earliest"];
    let rest = ["--retry-after", "10ms", "--count", "2", "--", "sh", "-c", script];
    let outcome = node.run(&[&group[..], &rest].concat());
    assert_eq!(outcome.out, "one k ear 1\none k ear 2\n", "{outcome:?}");
    assert!(outcome.err.contains("attempt 1: sh: exit status: 1; retry after 10ms"), "{outcome:?}");
    let remaining = node.run(&[&group[..], &["--idle", "200ms"]].concat());
    assert_eq!(remaining.done(), "", "nothing is left to do");
}

#[test]
fn command_may_run_longer_than_the_claim_deadline() {
    // If the machine pauses for longer than a claim lasts, the node delivers the record again. The test is then
    // repeated with a longer claim.
    let takes_one_attempt = |claim_ms: u32| {
        let node = Node::start();
        node.run(&["pub", "jobs", "one"]).done();
        let group = ["sub", "jobs", "--group", "crew", "--work", "--from", "earliest", "--count", "1"];
        let (deadline, sleep) = (format!("{claim_ms}ms"), format!("sleep {}.5; cat", claim_ms * 2 / 1_000));
        let outcome = node.run(&[&group[..], &["--deadline", &deadline, "--", "sh", "-c", &sleep]].concat());
        assert_eq!(outcome.out, "one", "{outcome:?}");
        let remaining = node.run(&["sub", "jobs", "--group", "crew", "--work", "--idle", "100ms"]).done();
        remaining.is_empty() && !outcome.err.contains("too late")
    };
    assert!([1_000, 4_000, 16_000].into_iter().any(takes_one_attempt));
}

#[test]
fn ctrl_c_ends_a_sleeping_member_without_counting_an_attempt() {
    let node = Node::start();
    let mut sleeping = member(&node, &["--work", "--ack", "never", "--sleep", "1h"]);
    wait_for_members(&node, 1);
    node.run(&["pub", "jobs", "one"]).done();
    let mut line = String::new();
    BufReader::new(sleeping.stdout.take().unwrap()).read_line(&mut line).unwrap();
    signal("INT", sleeping.id());
    assert_eq!(Outcome::of(sleeping).code, Some(0));
    let again = node.run(&["sub", "jobs", "--group", "crew", "--work", "--count", "1"]);
    assert_eq!(again.done(), "1 one\n");
}

#[test]
fn joining_a_group_by_wildcard_or_with_another_kind_is_refused() {
    let node = Node::start();
    let refused = node.run(&["sub", "jobs.*", "--group", "crew"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("--pattern"), "{refused:?}");
    node.run(&["sub", "jobs", "--group", "crew", "--work", "--idle", "1ms"]).done();
    let other = node.run(&["sub", "jobs", "--group", "crew"]);
    assert_eq!(other.code, Some(1));
    assert!(other.err.contains("work"), "{other:?}");
}

#[test]
fn member_resumes_work_after_its_node_restarts() {
    let node = Node::start();
    let mut waiting_member = member(&node, &["--work", "--count", "2"]);
    wait_for_members(&node, 1);
    node.run(&["pub", "jobs", "before"]).done();
    let mut lines = BufReader::new(waiting_member.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "1 before");
    let address = node.url.strip_prefix("dunlin://").unwrap().to_owned();
    node.kill();
    let node = Node::start_with(&["--listen", &address]);
    wait_for_members(&node, 1);
    node.run(&["pub", "jobs", "after"]).done();
    assert!(lines.next().unwrap().starts_with("EPOCH "), "the killed node's records are unknown");
    assert_eq!(lines.next().unwrap(), "1 after");
    assert_eq!(Outcome::of(waiting_member).code, Some(0));
}

#[test]
fn records_published_before_any_member_joined_are_delivered() {
    let node = Node::start();
    node.run(&["pub", "jobs", "one", "two"]).done();
    let out = node.run(&["sub", "jobs", "--group", "crew", "--work", "--count", "2"]).done();
    assert_eq!(out.lines().count(), 2, "{out}");
}

#[test]
fn dunlin_sub_reports_the_dead_letter_topic_after_last_attempt() {
    let node = Node::start();
    node.run(&["pub", "jobs", "one"]).done();
    let work = ["sub", "jobs", "--group", "crew", "--work", "--attempts", "1", "--count", "1", "--", "false"];
    let failed = node.run(&work);
    assert!(failed.err.contains("last attempt failed: moved to dead.jobs"), "{failed:?}");
    let dead = ["sub", "dead.jobs", "--from", "earliest", "--count", "1", "--format", "{payload}"];
    assert_eq!(node.run(&dead).done(), "one\n");
}

#[test]
fn group_member_with_a_missing_command_claims_no_record() {
    let node = Node::start();
    node.run(&["pub", "jobs", "one", "two"]).done();
    let plain = tempfile::NamedTempFile::new().unwrap();
    for (command, reason) in [
        ("./nothere.sh", "the command was not found"),
        ("nothere-at-all", "the command was not found"),
        (plain.path().to_str().unwrap(), "is not executable"),
    ] {
        let outcome = node.run(&["sub", "jobs", "--group", "crew", "--work", "--", command]);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.err.contains("cannot run") && outcome.err.contains(reason), "{outcome:?}");
    }
    let done = node.run(&["sub", "jobs", "--group", "crew", "--work", "--count", "2"]).done();
    assert_eq!(done, "1 one\n2 two\n", "at their first attempt");
}
