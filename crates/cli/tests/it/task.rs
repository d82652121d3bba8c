//! Tests of `dunlin task`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use dunlin_wait::{find, until};

use crate::dunlin::{Node, Outcome, RunningProgram, signal};

fn start_worker(node: &Node, arguments: &[&str]) -> RunningProgram {
    let ttl = if arguments.contains(&"--ttl") { &[][..] } else { &["--ttl", "2s"] };
    let mut command = node.command(&[&["task", "worker"], ttl, arguments].concat());
    RunningProgram::from(
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts"),
    )
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text.lines().next().unwrap_or_default()).expect("an object")
}

#[test]
fn tasks_are_submitted_completed_shown_and_watched() {
    let node = Node::start();
    let worker = start_worker(&node, &["--kind", "count", "--slots", "2", "--", "wc", "-c"]);
    assert_eq!(node.run(&["task", "submit", "count", "hello", "--wait"]).done().trim(), "5");
    let many =
        node.run_with(&["task", "submit", "count", "--tenant", "acme", "--each", "-"], b"a\nbb\nccc\n");
    let ids: Vec<String> = many.done().lines().map(str::to_owned).collect();
    assert_eq!(ids.len(), 3);
    until("the task is completed", || node.run(&["task", "get", &ids[2]]).done().contains("completed"));
    assert_eq!(node.run(&["task", "get", &ids[2], "--result"]).done().trim(), "3");
    let task = json(&node.run(&["task", "get", &ids[2], "--json"]).done());
    assert_eq!((&task["tenant"], &task["payload"]), (&"acme".into(), &"ccc".into()));
    assert!(
        task["outcome"]["memory_bytes"].as_u64() > Some(0) || task["outcome"]["cpu_us"].as_u64() > Some(0),
        "{task}"
    );
    let line = json(&node.run(&["task", "list", "--tenant", "acme", "--json"]).done());
    assert!(line.get("payload").is_none() && line["kind"] == "count", "{line}");
    let listed = node.run(&["task", "list", "--tenant", "acme", "--stage", "completed"]).done();
    assert!(listed.lines().count() >= 2, "{listed}");
    let tenants = json(&node.run(&["task", "tenants", "acme", "--json"]).done());
    assert_eq!(tenants["submitted"], 3);
    let workers = json(&node.run(&["task", "workers", "--json"]).done());
    assert_eq!((&workers["kinds"][0], &workers["draining"]), (&"count".into(), &false.into()));
    assert!(node.run(&["task", "queues"]).done().contains("acme"));
    let events = node.run(&["task", "watch", "--from", "earliest", "-n", "3", "--tenant", "default"]).done();
    let what: Vec<&str> = events.lines().filter_map(|line| line.split('\t').nth(2)).collect();
    assert_eq!(what, ["submitted", "started", "completed"]);
    signal("TERM", worker.id());
    let ended = Outcome::of(worker);
    assert_eq!((ended.code, ended.err.contains("4 tasks done")), (Some(0), true), "{ended:?}");
}

#[test]
fn dunlin_task_why_names_the_label_that_no_worker_has() {
    let node = Node::start();
    let _plain = start_worker(&node, &["--kind", "where", "--", "echo", "plain"]);
    let submit = |arguments: &[&str]| node.run(&[&["task", "submit", "where"], arguments].concat());
    assert_eq!(submit(&["--wait"]).done().trim(), "plain");
    let needs = ["--needs", "gpu=a100", "--cpu", "0.5", "--memory", "1GiB"];
    let waiting = submit(&needs).done();
    assert_eq!(
        node.run(&["task", "why", waiting.trim()]).done().trim(),
        "waiting: no worker has label gpu=a100 (1 workers, 0 fit); tasks ahead of it: 0"
    );
    let found = node.run(&["task", "get", waiting.trim()]).done();
    assert!(
        found.contains("gpu=a100, 0.5 processors, 1.0 GiB")
            || found.contains("gpu=a100, 0.5 processors, 1 GiB"),
        "{found}"
    );
    assert!(node.run(&["task", "queues"]).done().contains("gpu=a100"));
    let fitting = [
        "--kind", "where", "--label", "gpu=a100", "--cpu", "2", "--memory", "2GiB", "--tenant", "default",
        "--", "echo", "gpu",
    ];
    let _gpu = start_worker(&node, &fitting);
    assert_eq!(submit(&[&needs[..], &["--wait"]].concat()).done().trim(), "gpu");
    let large = submit(&[&needs[..2], &["--memory", "3GiB"]].concat()).done();
    let reason = node.run(&["task", "why", large.trim()]).done();
    assert!(
        reason.starts_with("waiting: no worker is large enough for 0 mCPU and 3221225472 bytes"),
        "{reason}"
    );
    let others = submit(&[&needs[..], &["--tenant", "acme"]].concat()).done();
    let reason = node.run(&["task", "why", others.trim()]).done();
    assert!(
        reason.starts_with("waiting: all workers that could run it (1) serve only other tenants"),
        "{reason}"
    );
    let workers = node.run(&["task", "workers", "--json"]).done();
    let gpu = workers.lines().map(json).find(|worker| worker["labels"][0][0] == "gpu").expect("a worker");
    assert_eq!((&gpu["cpu_milli"], &gpu["memory_bytes"]), (&2_000.into(), &(2_u64 << 30).into()));
    assert_eq!(gpu["tenants"][0], "default");
    assert_eq!(submit(&["--needs", "gpu"]).code, Some(2));
}

#[test]
fn reason_why_a_task_waits_has_no_control_characters() {
    let node = Node::start();
    let _plain = start_worker(&node, &["--kind", "where", "--", "echo", "plain"]);
    assert_eq!(node.run(&["task", "submit", "where", "--wait"]).done().trim(), "plain");
    let needs = "gpu=\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J";
    let waiting = node.run(&["task", "submit", "where", "--needs", needs]).done();
    let reason = node.run(&["task", "why", waiting.trim()]).done();
    assert!(reason.contains("no worker has label gpu=") && reason.contains("owned"), "{reason:?}");
    assert!(!reason.trim_end().contains(char::is_control), "{reason:?}");
}

#[test]
fn refusal_of_a_task_names_the_value_and_the_limit() {
    let node = Node::start();
    let long = "k".repeat(300);
    for (arguments, text) in [
        (&["k", "--priority", "-1"][..], "-1 is not in 0..=9"),
        (&["k", "--after", "abc123"], "waits for task abc123, which is not known"),
        (&["k", "--tenant", &long], "the tenant is too long: name_bytes_max = 255, but the size is 300"),
        (&[&long], "the kind is too long: name_bytes_max = 255, but the size is 300"),
    ] {
        let refused = node.run(&[&["task", "submit"], arguments].concat());
        assert!(refused.code != Some(0) && refused.err.contains(text), "{refused:?}");
    }
    let refused = node.run(&["task", "tenant", "acme", "--weight", "0"]);
    assert!(refused.err.contains("weight 0 is not one of 1 to 10000"), "{refused:?}");
    let strict = Node::start_with(&["--topics-auto-create=false"]);
    let refused = strict.run(&["task", "submit", "k", "--tenant", "nobody"]);
    assert!(refused.err.contains("there is no tenant \"nobody\""), "{refused:?}");
}

#[test]
fn sigterm_ends_a_worker_whose_node_is_gone() {
    let node = Node::start();
    let worker = start_worker(&node, &["--kind", "count", "--", "wc", "-c"]);
    assert_eq!(node.run(&["task", "submit", "count", "hello", "--wait"]).done().trim(), "5");
    drop(node);
    signal("TERM", worker.id());
    let ended = Outcome::of(worker);
    assert_eq!((ended.code, ended.err.contains("1 tasks done")), (Some(0), true), "{ended:?}");
}

#[test]
fn waiting_submitter_learns_that_no_worker_serves_its_task_kind() {
    let node = Node::start();
    let mut waiting = node
        .command(&["task", "submit", "orphan", "x", "--wait"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map(RunningProgram::from)
        .expect("the program starts");
    let mut line = String::new();
    BufReader::new(waiting.stderr.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("the program writes a line");
    assert!(line.contains("no worker serves kind"), "{line}");
    let _worker = start_worker(&node, &["--kind", "orphan", "--", "cat"]);
    let mut done = String::new();
    BufReader::new(waiting.stdout.take().expect("a pipe"))
        .read_line(&mut done)
        .expect("the program writes a line");
    assert_eq!(done.trim(), "x");
}

#[test]
fn failed_task_becomes_a_dead_letter_that_can_be_retried() {
    let node = Node::start();
    let worker =
        start_worker(&node, &["--kind", "bad", "--", "sh", "-c", "echo no such thing >&2; exit 100"]);
    let failed = node.run(&["task", "submit", "bad", "--wait"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.err.contains("no such thing"), "{failed:?}");
    let dead = json(&node.run(&["task", "list", "--state", "dead", "--json"]).done());
    let id = dead["task"].as_str().expect("a number");
    assert_eq!(node.run(&["task", "retry", id]).done(), format!("{id} restarted\n"));
    drop(worker);
    let waiting = node.run(&["task", "submit", "nobody"]).done();
    let reason = node.run(&["task", "why", waiting.trim()]).done();
    assert!(reason.starts_with("waiting"), "{reason}");
    assert_eq!(
        node.run(&["task", "cancel", waiting.trim()]).done(),
        format!("{} cancelled\n", waiting.trim())
    );
    let missing = node.run(&["task", "why", "ffff"]);
    assert_eq!((missing.code, missing.err.contains("NO_TASK")), (Some(1), true), "{missing:?}");
    assert_eq!(node.run(&["task", "why", "zz"]).code, Some(2));
    node.run(&["task", "tenant", "acme", "--weight", "3", "--concurrency", "0,0,2,0", "--queued", "1"])
        .done();
    let full = node.run_with(&["task", "submit", "nobody", "--tenant", "acme", "--each", "-"], b"a\nb\n");
    assert_eq!((full.code, full.err.contains("QUEUE_FULL")), (Some(1), true), "{full:?}");
}

#[test]
fn task_tenant_command_changes_only_the_given_settings() {
    let node = Node::start();
    let set = |arguments: &[&str]| {
        node.run(&[&["task", "tenant", "acme"], arguments].concat()).done();
        json(&node.run(&["task", "tenants", "acme", "--json"]).done())
    };
    let limit = |key: &str, count: Option<u32>, rate: serde_json::Value| serde_json::json!({"key": key, "running_max": count, "rate": rate});
    let rate = serde_json::json!({"count": 10, "per_ms": 1_000, "burst": 1});
    set(&["--weight", "3", "--concurrency", "2,8,10,20", "--queued", "7", "--retries", "50"]);
    set(&["--limit", "user=1", "--limit", "kind=5", "--rate", "user=10/1s"]);
    let found = set(&["--limit", "user=2", "--queued", "8"]);
    let quota = serde_json::json!({"reserved": 2, "soft": 8, "hard": 10, "burst": 20});
    assert_eq!((&found["weight"], &found["concurrency"]), (&3.into(), &quota));
    assert_eq!((&found["queued_max"], &found["retry_percent"]), (&8.into(), &50.into()));
    let null = serde_json::Value::Null;
    let of_kind = limit("kind", Some(5), null.clone());
    let of_user = [limit("user", None, rate.clone()), limit("user", Some(2), null)];
    let [starts, running] = of_user;
    assert_eq!(found["limits"], serde_json::Value::from(vec![of_kind, starts, running]));
    let found = set(&["--without", "limits", "--without", "concurrency", "--without", "weight"]);
    assert_eq!(found["limits"], serde_json::Value::from(vec![limit("user", None, rate)]));
    assert_eq!((&found["weight"], &found["concurrency"]["hard"]), (&1.into(), &0.into()));
    assert_eq!(found["queued_max"], 8);
    assert_eq!(set(&[]), found, "nothing is given");
}

#[test]
fn redrive_counts_no_dead_letters_of_other_tenants() {
    let node = Node::start();
    let worker = start_worker(&node, &["--kind", "bad", "--", "sh", "-c", "exit 100"]);
    for tenant in ["default", "acme"] {
        node.run(&["task", "submit", "bad", "x", "--tenant", tenant]).done();
        until("the task is a dead letter", || {
            json(&node.run(&["task", "tenants", tenant, "--json"]).done())["dead"] == 1
        });
    }
    drop(worker);
    let redriven = node.run(&["task", "redrive"]);
    assert_eq!(redriven.out, "1 dead letters restarted\n", "{redriven:?}");
    let hint = "dead letters may remain, ";
    assert!(redriven.code == Some(0) && redriven.err.starts_with(hint), "{redriven:?}");
    let redriven = node.run(&["task", "redrive", "--tenant", "acme"]);
    assert_eq!((redriven.out.as_str(), redriven.err.as_str()), ("1 dead letters restarted\n", ""));
}

#[test]
fn retry_of_dead_tasks_of_an_unknown_tenant_is_refused() {
    let node = Node::start();
    let refused = node.run(&["task", "redrive", "--tenant", "nobody"]);
    assert!(refused.code != Some(0) && refused.err.contains("TENANT_UNKNOWN"), "{refused:?}");
}

#[test]
fn cancelling_a_task_ends_its_command() {
    let node = Node::start();
    let worker = start_worker(&node, &["--kind", "long", "--", "sh", "-c", "echo began >&2; exec sleep 600"]);
    let id = node.run(&["task", "submit", "long"]).done();
    until("the task runs", || node.run(&["task", "get", id.trim()]).done().contains("running"));
    node.run(&["task", "cancel", id.trim()]).done();
    until("the task is cancelled", || node.run(&["task", "get", id.trim()]).done().contains("cancelled"));
    signal("TERM", worker.id());
    assert_eq!(Outcome::of(worker).code, Some(0));
}

#[test]
fn error_for_an_oversized_task_result_names_the_result_size() {
    let node = Node::start();
    let script = "head -c $(cat) /dev/zero | tr '\\0' x";
    let worker = start_worker(&node, &["--kind", "write", "--", "sh", "-c", script]);
    let write = |bytes: &str| node.run(&["task", "submit", "write", bytes, "--retries", "0", "--wait"]);
    for bytes in ["1048577", "20000000"] {
        let failed = write(bytes);
        assert_eq!(failed.code, Some(1), "{}", failed.err);
        let reason = format!("the command wrote {bytes} bytes, more than result_bytes_max = 1048576");
        assert!(failed.err.contains(&reason), "{}", failed.err);
    }
    assert_eq!(write("1048576").done().trim().len(), 1_048_576);
    signal("TERM", worker.id());
    let ended = Outcome::of(worker);
    assert_eq!((ended.code, ended.err.contains("3 tasks done")), (Some(0), true), "{ended:?}");
}

/// Processes that hold a task's pipe for ten minutes, even after the task has ended. Dropping the value kills the
/// processes.
struct Holders(std::path::PathBuf);

impl Holders {
    fn pids(&self) -> Vec<u32> {
        let pids = std::fs::read_to_string(&self.0).unwrap_or_default();
        pids.lines().map(|pid| pid.parse().expect("a number")).collect()
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        let pids = self.pids().into_iter().map(|pid| pid.to_string());
        let _ = std::process::Command::new("kill").arg("-KILL").args(pids).status();
    }
}

#[test]
fn task_ends_when_its_command_and_its_process_group_end() {
    let node = Node::start();
    let dir = tempfile::tempdir().expect("a directory");
    let holders = Holders(dir.path().join("holders"));
    std::fs::write(&holders.0, "").expect("a file");
    // The script continues only when the new process is in a session of its own, and therefore in another process
    // group.
    let detach = format!(
        "setsid sh -c 'echo $$ >> {0}; exec sleep 600' & until grep -qx $! {0}; do sleep 0.05; done",
        holders.0.display()
    );
    let script = format!(
        "case $(cat) in group) sleep 600 & echo $!;; away) {detach}; echo began;; hang) {detach}; exec sleep 600;; esac"
    );
    let worker = start_worker(&node, &["--kind", "leave", "--", "sh", "-c", &script]);
    let submit =
        |arguments: &[&str]| node.run(&[&["task", "submit", "leave", "--retries", "0"], arguments].concat());
    let group = submit(&["group", "--wait"]).done();
    until("the process group is gone", || !is_running(&group));
    assert_eq!(submit(&["away", "--wait"]).done(), "began\n");
    let timed_out = submit(&["hang", "--timeout", "1s", "--wait"]);
    assert_eq!(
        (timed_out.code, timed_out.err.contains("exceeded the time limit")),
        (Some(1), true),
        "{timed_out:?}"
    );
    assert_eq!(submit(&["away", "--wait"]).done(), "began\n", "the slot is free");
    let before = holders.pids().len();
    let cancelled = submit(&["hang"]).done();
    until("the task's process runs", || holders.pids().len() > before);
    node.run(&["task", "cancel", cancelled.trim()]).done();
    assert_eq!(submit(&["away", "--wait"]).done(), "began\n", "the slot is free");
    signal("TERM", worker.id());
    assert_eq!(Outcome::of(worker).code, Some(0));
    assert!(holders.pids().iter().all(|pid| is_running(&pid.to_string())), "somebody held on all the while");
}

#[test]
fn worker_with_a_missing_command_takes_no_task() {
    let node = Node::start();
    let outcome = node.run(&["task", "worker", "--kind", "k", "--", "/nonexistent"]);
    assert_eq!(
        (outcome.code, outcome.err.contains("the command was not found")),
        (Some(1), true),
        "{outcome:?}"
    );
    assert_eq!(node.run(&["task", "workers", "--json"]).done(), "");
}

/// Each event must be printed at once, even into a pipe.
#[test]
fn task_watch_prints_events_as_they_happen() {
    let node = Node::start();
    let mut command = node.command(&["task", "watch", "--json"]);
    let mut watch = RunningProgram::from(command.stdout(Stdio::piped()).spawn().expect("the program starts"));
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    // The watch may begin after the first tasks, so the test submits many.
    let id = std::thread::scope(|scope| {
        let submitting = scope
            .spawn(|| (0..50).map(|_| node.run(&["task", "submit", "nobody"]).done()).collect::<String>());
        let line = lines.next().expect("the program writes a line").expect("the line is UTF-8");
        let event = json(&line);
        assert_eq!(event["event"], "submitted");
        submitting.join().expect("the thread ends")
    });
    assert!(!id.is_empty());
}

fn is_running(pid: &str) -> bool {
    // A zombie, which has ended but was not reaped, does not count as running.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

/// If a worker's connection breaks, another worker must receive the task at once, and not only when the worker's lease
/// of ten minutes ends.
#[test]
fn killed_worker_leaves_no_process_and_frees_its_task_at_once() {
    let node = Node::start();
    let dir = tempfile::tempdir().expect("a directory");
    let pid_file = dir.path().join("begun");
    let script = format!("sleep 600 & echo $$ $! > {0}.part; mv {0}.part {0}; wait", pid_file.display());
    let first = start_worker(&node, &["--ttl", "10min", "--kind", "work", "--", "sh", "-c", &script]);
    let id = node.run(&["task", "submit", "work"]).done();
    let running = find("it has begun", || std::fs::read_to_string(&pid_file).ok());
    let running: Vec<&str> = running.split_whitespace().collect();
    assert_eq!((running.len(), running.iter().all(|pid| is_running(pid))), (2, true), "{running:?}");
    signal("KILL", first.id());
    until("nothing of it runs", || !running.iter().any(|pid| is_running(pid)));
    let _second = start_worker(&node, &["--kind", "work", "--", "echo", "done by another"]);
    until("the task is completed", || node.run(&["task", "get", id.trim()]).done().contains("completed"));
    assert_eq!(node.run(&["task", "get", id.trim(), "--result"]).done(), "done by another\n");
}

#[test]
fn repeated_task_key_is_refused_only_if_the_tasks_differ() {
    let node = Node::start();
    let submit =
        |payload: &str| node.run(&["task", "submit", "mail", payload, "--key", "order-17", "--retries", "7"]);
    let first = submit("x").done();
    let again = submit("x");
    assert_eq!(again.out, first);
    assert!(again.err.contains("with this key already exists; it is waiting"), "{again:?}");
    let other = submit("y");
    assert!(
        other.code == Some(1) && other.err.contains("differs from it in queue, kind, payload or subject"),
        "{other:?}"
    );
    let shown = node.run(&["task", "get", first.trim()]).done();
    for line in ["submitted ", "timeout       5m", "retries       7, ", "key           order-17"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let object = json(&node.run(&["task", "get", first.trim(), "--json"]).done());
    assert_eq!(
        (&object["timeout_ms"], &object["retry"]["retries"]),
        (&300_000.into(), &7.into()),
        "{object}"
    );
    node.run(&["task", "cancel", first.trim()]).done();
    let cancelled = submit("x");
    assert!(cancelled.code == Some(1) && cancelled.err.contains("was cancelled"), "{cancelled:?}");
}

#[test]
fn worker_waits_for_a_node_that_is_not_up_yet() {
    let node = Node::start();
    let address = node.url.strip_prefix("dunlin://").unwrap().to_owned();
    let mut command = node.command(&["task", "worker", "--kind", "count", "--", "wc", "-c"]);
    node.kill();
    let mut worker = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines();
    let _worker = RunningProgram::from(worker);
    assert!(lines.next().unwrap().unwrap().contains("cannot reach a node"));
    let node = Node::start_with(&["--listen", &address]);
    assert_eq!(node.run(&["task", "submit", "count", "hello", "--wait"]).done().trim(), "5");
}

#[test]
fn worker_name_in_the_environment_overrides_the_name_option() {
    let node = Node::start();
    let mut command = node.command(&["task", "worker", "--kind", "k", "--name", "own", "--", "true"]);
    let _worker = RunningProgram::from(command.env("DUNLIN_WORKER_NAME", "given-1").spawn().unwrap());
    let workers = find("it is attached", || {
        let workers = node.run(&["task", "workers", "--json"]).done();
        (!workers.is_empty()).then_some(workers)
    });
    assert_eq!(json(&workers)["name"], "given-1");
}
