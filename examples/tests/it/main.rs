//! Runs every example, and checks that it prints what its first comment promises.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

fn output_of(program: &str) -> String {
    let output = Command::new(program).output().expect("the example starts");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("examples print text")
}

#[test]
fn publish_and_subscribe_example_prints_three_records_in_order() {
    let output = output_of(env!("CARGO_BIN_EXE_publish-and-subscribe"));
    let lines: Vec<_> = output.lines().map(|line| line.split_once(' ').unwrap_or_default().1).collect();
    assert_eq!(lines, ["tick 1", "tick 2", "tick 3"]);
}

#[test]
fn missed_records_example_accounts_for_every_record() {
    let output = output_of(env!("CARGO_BIN_EXE_missed-records"));
    let lines: Vec<_> = output.lines().collect();
    assert!(lines[0].starts_with("behind 10000 of "), "{output}");
    assert!(lines[1].starts_with("missed 1 … "), "{output}");
    assert!(lines[2].ends_with(" missed = 10000 published"), "{output}");
}

#[test]
fn subject_example_prints_all_records_and_then_filtered_ones() {
    let output = output_of(env!("CARGO_BIN_EXE_one-log-many-subjects"));
    assert_eq!(
        output,
        "all: 1 orders.eu.1\nall: 2 orders.us.2\nall: 3 orders.eu.3\neuropean: 1 orders.eu.1\neuropean: 3 orders.eu.3\n"
    );
}

#[test]
fn safe_retry_returns_the_position_of_the_first_attempt() {
    assert!(output_of(env!("CARGO_BIN_EXE_safe-retry")).contains("duplicate: true"));
}

#[test]
fn request_reply_example_prints_the_reply() {
    assert_eq!(output_of(env!("CARGO_BIN_EXE_request-reply")), "HELLO\n");
}

#[test]
fn work_queue_example_ends_each_job_as_done_or_dead_letter() {
    let output = output_of(env!("CARGO_BIN_EXE_work-queue"));
    let lines: Vec<_> = output.lines().collect();
    let expected = [
        "done: resize a.png, attempt 2",
        "done: resize b.png, attempt 1",
        "cannot: no such job, attempt 1",
        "done: resize c.png, attempt 1",
        "cannot: no such job, attempt 2",
        "dead: no such job",
    ];
    assert_eq!(lines, expected);
}

/// The process of an example that runs until it is killed, and the lines of its output.
struct RunningExample(Child, std::io::Lines<BufReader<std::process::ChildStdout>>);

impl RunningExample {
    fn start(arguments: &[&str]) -> RunningExample {
        let mut command = Command::new(env!("CARGO_BIN_EXE_world"));
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().expect("the example starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        RunningExample(child, lines)
    }

    fn read_line(&mut self) -> String {
        self.1.next().expect("the example prints another line").expect("examples print text")
    }
}

impl Drop for RunningExample {
    fn drop(&mut self) {
        // The example may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn world_example_gives_a_region_to_its_second_process() {
    let mut first = RunningExample::start(&[]);
    let line = first.read_line();
    let url =
        line.strip_prefix("dunlin space watch walkers --url ").expect("the first line contains the URL");
    assert!(first.read_line().contains("Owns { region: RegionId("));
    let sight = first.read_line();
    assert!(sight.starts_with("Entered(") && sight.ends_with(" in sight"), "{sight}");
    let mut second = RunningExample::start(&[url]);
    second.read_line();
    let owns = second.read_line();
    // The second process now owns a region. Before, the first process owned this region, or the region had no owner
    // yet.
    assert!(owns.contains("Owns { region: RegionId("), "{owns}");
}
