//! Tests of the options `--workers` and `--scale`, with which a node starts, drains and replaces workers.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use dunlin_wait::{Deadline, POLL};

use crate::dunlin::{Node, Outcome, RunningProgram, dunlin, run, signal};

/// Calls `poll` until its result satisfies `condition`, and returns the result. Panics with the last result when the
/// time is over; `what` describes the condition.
fn until<T: std::fmt::Debug>(what: &str, mut poll: impl FnMut() -> T, condition: impl Fn(&T) -> bool) -> T {
    let deadline = Deadline::new();
    loop {
        let value = poll();
        if condition(&value) {
            return value;
        }
        deadline.check(format_args!("{what}: {value:?}"));
        std::thread::sleep(POLL);
    }
}

/// Returns the running child processes of the process `parent`.
fn children(parent: u32) -> Vec<u32> {
    let child = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let is_zombie = fields.next() == Some("Z");
        (fields.next()?.parse() == Ok(parent) && !is_zombie).then_some(pid)
    };
    let mut found: Vec<u32> =
        std::fs::read_dir("/proc").expect("Linux").flatten().filter_map(child).collect();
    found.sort_unstable();
    found
}

/// Returns the names of the workers that are attached to the node and take tasks.
fn attached_workers(node: &Node) -> Vec<String> {
    let output = node.run(&["task", "workers", "--json"]).done();
    let workers =
        output.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
    let active = workers.filter(|worker| worker["draining"] == false);
    active.map(|worker| worker["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn completed_tasks(node: &Node) -> u64 {
    let output = node.run(&["task", "tenants", "acme", "--json"]).done();
    serde_json::from_str::<serde_json::Value>(output.trim()).expect("an object")["completed"]
        .as_u64()
        .unwrap_or(0)
}

fn worker_command(script: &str) -> String {
    format!("'{}' task worker --kind work --ttl 1s -- sh -c '{script}'", env!("CARGO_BIN_EXE_dunlin"))
}

#[test]
fn backlog_starts_workers_and_an_empty_queue_drains_them() {
    let node = Node::start_with(&["--workers", &worker_command("sleep 0.5"), "--scale", "1..3"]);
    let first = until("one is there at once", || attached_workers(&node), |names| names.len() == 1);
    let pids = children(node.pid());
    assert_eq!(pids.len(), 1, "{first:?}");

    // The node must replace a killed worker by a worker with another name.
    signal("KILL", pids[0]);
    let second =
        until("another is there", || attached_workers(&node), |names| names.len() == 1 && *names != first);
    let replaced = children(node.pid());
    assert!(replaced.len() == 1 && replaced != pids, "{second:?}");

    // These are too many tasks for one worker, so the node must start more workers.
    let lines: String = (0..40).map(|number| format!("{number}\n")).collect();
    let submitted =
        node.run_with(&["task", "submit", "work", "--tenant", "acme", "--each", "-"], lines.as_bytes());
    assert_eq!(submitted.done().lines().count(), 40);
    until("there are more", || attached_workers(&node).len(), |workers| *workers == 3);
    let busy = children(node.pid());
    assert_eq!(busy.len(), 3);
    signal("KILL", busy[1]);
    until("the killed one is replaced", || children(node.pid()), |now| now.len() == 3 && *now != busy);
    until("all is done", || completed_tasks(&node), |completed| *completed == 40);

    // When no tasks are left, the node must ask the surplus workers to end.
    until(
        "one is left",
        || (attached_workers(&node).len(), children(node.pid()).len()),
        |left| *left == (1, 1),
    );
    assert_eq!(completed_tasks(&node), 40);
    let last = children(node.pid());
    assert_eq!(node.stop(), Some(0));
    until("none is left behind", || is_running(last[0]), |running| !running);
}

fn is_running(pid: u32) -> bool {
    // A zombie, which has ended but was not reaped, does not count as running.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

#[test]
fn killed_node_leaves_no_worker_or_command_running() {
    let dir = tempfile::tempdir().expect("a directory");
    let pid_file = dir.path().join("begun");
    let script = format!("echo $$ > {0}.part; mv {0}.part {0}; exec sleep 600", pid_file.display());
    let node = Node::start_with(&["--workers", &worker_command(&script), "--scale", "2..2"]);
    until("both are there", || attached_workers(&node).len(), |workers| *workers == 2);
    node.run(&["task", "submit", "work"]).done();
    let output = until(
        "one has begun",
        || std::fs::read_to_string(&pid_file).unwrap_or_default(),
        |output| !output.is_empty(),
    );
    let command: u32 = output.trim().parse().expect("a number");
    let pids = children(node.pid());
    assert_eq!(pids.len(), 2);
    assert!(is_running(command));
    node.kill();
    for pid in [pids[0], pids[1], command] {
        until("the process ended with the node", || is_running(pid), |running| !running);
    }
}

#[test]
fn invalid_worker_settings_are_refused_before_the_node_starts() {
    let refused = |arguments: &[&str]| -> Outcome {
        let refused = run(&[&["serve"], arguments].concat());
        assert_eq!(
            (refused.code.is_some_and(|code| code > 0), refused.out.as_str()),
            (true, ""),
            "{refused:?}"
        );
        refused
    };
    let here = ["--listen", "127.0.0.1:0", "--workers"];
    assert!(refused(&[&here[..], &["/nowhere/at-all"]].concat()).err.contains("the command was not found"));
    assert!(refused(&[&here[..], &["sh -c 'never ends"]].concat()).err.contains("expected a command"));
    let wrong = refused(&[&here[..], &["sleep 1", "--scale", "8..1"]].concat());
    assert!(wrong.err.contains("scale = \"8..1\"") && wrong.err.contains("1..8"), "{wrong:?}");
    let nowhere = refused(&["--listen", "off", "--http-listen", "127.0.0.1:0", "--workers", "sleep 1"]);
    assert!(nowhere.err.contains("workers need a listener"), "{nowhere:?}");
}

/// If the command ends without having become a worker, the node must start it again, after pauses that grow.
#[test]
fn worker_command_that_fails_is_restarted_at_a_limited_rate() {
    let mut command =
        dunlin(&["serve", "--listen", "127.0.0.1:0", "--workers", "sh -c 'exit 3'", "--scale", "2..4"]);
    let mut node = RunningProgram::from(
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts"),
    );
    let mut lines = BufReader::new(node.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let has_failed = |line: &String| line.contains("ended before the worker was ready");
    assert_eq!(lines.by_ref().filter(has_failed).take(2).count(), 2, "each time it is said");
    assert!(node.try_wait().expect("wait for the program").is_none(), "the node goes on");
    signal("TERM", node.id());
    let more = lines.filter(has_failed).count();
    assert!(more <= 20, "{more} more");
    assert_eq!(Outcome::of(node).code, Some(0));
}

mod long {
    use super::*;

    // The test is slow, because a node keeps idle workers for at least ten seconds.
    #[test]
    fn warm_workers_take_a_backlog_and_new_ones_refill_the_pool() {
        let options = ["--workers", &worker_command("sleep 0.5"), "--scale", "1..3", "--scale-warm", "2"];
        let node = Node::start_with(&options);
        until(
            "one works, two wait",
            || (attached_workers(&node).len(), children(node.pid()).len()),
            |now| *now == (1, 3),
        );
        let before = children(node.pid());
        let lines: String = (0..40).map(|number| format!("{number}\n")).collect();
        node.run_with(&["task", "submit", "work", "--tenant", "acme", "--each", "-"], lines.as_bytes())
            .done();
        until("those that waited work", || attached_workers(&node).len(), |workers| *workers == 3);
        let now = until("two others wait", || children(node.pid()), |pids| pids.len() == 5);
        assert!(before.iter().all(|pid| now.contains(pid)), "{before:?} of {now:?}");
        until("all is done", || completed_tasks(&node), |completed| *completed == 40);
        until(
            "one is left, and the pool",
            || (attached_workers(&node).len(), children(node.pid()).len()),
            |left| *left == (1, 3),
        );
        let last = children(node.pid());
        assert_eq!(node.stop(), Some(0));
        until("none is left behind", || last.iter().any(|pid| is_running(*pid)), |running| !running);
    }
}
