//! Tests of `dunlin lock`. `dunlin lock` runs a command. None of the command's processes may run while another client
//! can hold the lock.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use dunlin_wait::until;

use crate::dunlin::{Node, RunningProgram, signal};

/// Runs `dunlin lock` with a shell script, which prints the script's process id. Returns `dunlin lock` as a running
/// program, and this id.
fn hold(node: &Node, name: &str, ttl: &str, script: &str) -> (RunningProgram, u32) {
    let mut command = node.command(&["lock", name, "--ttl", ttl, "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child.into(), line.trim().parse().unwrap_or_else(|_| panic!("{line:?}")))
}

/// Whether a process runs. A zombie, which has ended but was not reaped, does not count as running.
fn is_running(pid: u32) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap();
    let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

/// Takes the lock `name` as another client. Returns whether the process `pid` still ran when this client held the lock.
fn runs_for_next_holder(node: &Node, name: &str, pid: u32) -> bool {
    let script = format!("ps -o stat= -p {pid} | grep -qv Z && echo runs || echo gone");
    node.run(&["lock", name, "--", "sh", "-c", &script]).done() == "runs\n"
}

#[test]
fn signal_ends_the_command_of_dunlin_lock_before_lock_release() {
    let node = Node::start();
    // A `dunlin lock` that receives SIGKILL cannot release its lock, so the lock stays held until the lease ends. The
    // guard process kills the command at once. A lease of 6 s gives the guard enough time, even on a busy machine.
    let ttl = "6s";
    for name in ["TERM", "HUP", "INT", "QUIT", "KILL"] {
        let (mut first, pid) = hold(&node, name, ttl, "echo $$; exec sleep 600");
        signal(name, first.id());
        assert!(!runs_for_next_holder(&node, name, pid), "{name}");
        assert!(!first.wait().unwrap().success(), "{name}");
    }
}

#[test]
fn command_that_ignores_signals_is_killed_before_lock_release() {
    let node = Node::start();
    let (first, pid) = hold(&node, "stubborn", "30s", "trap '' TERM INT; echo $$; while :; do sleep 1; done");
    signal("TERM", first.id());
    assert!(!runs_for_next_holder(&node, "stubborn", pid));
}

#[test]
fn background_processes_end_with_the_command_of_dunlin_lock() {
    let node = Node::start();
    let (mut first, background_pid) =
        hold(&node, "rest", "30s", "sleep 600 >/dev/null 2>&1 & echo $!; exit 3");
    assert_eq!(first.wait().unwrap().code(), Some(3));
    assert!(!is_running(background_pid));
}

#[test]
fn command_that_holds_a_lock_is_ended_if_the_node_freezes() {
    let node = Node::start();
    let (mut first, pid) = hold(&node, "frozen", "2s", "trap '' TERM; echo $$; while :; do sleep 1; done");
    signal("STOP", node.pid());
    let ended = first.wait();
    signal("CONT", node.pid());
    assert_eq!(ended.unwrap().code(), Some(2));
    assert!(!is_running(pid));
}

#[test]
fn command_of_a_frozen_dunlin_lock_is_ended_at_lease_expiry() {
    let node = Node::start();
    let (first, pid) = hold(&node, "stopped", "1s", "echo $$; exec sleep 600");
    signal("STOP", first.id());
    until("the command ends with the lease", || !is_running(pid));
    signal("CONT", first.id());
}
