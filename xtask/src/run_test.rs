//! `cargo xtask run-test`: runs the program of one test in its own process group, and watches the processes of the
//! group. `cargo xtask test` makes cargo-nextest start every test through this command.
//!
//! If a test exceeds its time limit, nextest sends SIGTERM to this command. The command then prints the stacks of all
//! threads in the group, and kills the group. If processes of the group are left after a test has ended, the test
//! fails.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long processes that a test has started may continue to run after the test has ended.
const LEFT_OVER_GRACE: Duration = Duration::from_secs(20);
/// Maximum number of stack frames to print for each thread.
const FRAMES_MAX: u32 = 40;

/// The program to run, and its arguments.
#[derive(clap::Args)]
pub struct Options {
    /// Program of the test and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

/// Runs the program of the test until it ends. Returns the program's exit code.
pub fn run(options: &Options) -> Result<ExitCode> {
    let (program, arguments) = options.command.split_first().context("the test program is missing")?;
    // Installs the signal handlers before the test starts, so that no signal is missed.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP])?;
    let mut child = Command::new(program)
        .args(arguments)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let group = Pid::from_child(&child);
    thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGTERM {
                print_stacks(group);
            }
            let _ = kill_process_group(group, Signal::KILL);
        }
    });
    let status = child.wait()?;
    let is_clean = all_ended(group);
    Ok(match status.code() {
        Some(0) if !is_clean => ExitCode::FAILURE,
        Some(code) => ExitCode::from(code as u8),
        None => {
            eprintln!("the test was killed by signal {}", status.signal().unwrap_or_default());
            ExitCode::from(101)
        }
    })
}

/// Waits for the processes of the group to end. Kills the processes that do not end within [`LEFT_OVER_GRACE`]. Returns
/// whether all processes ended without being killed.
fn all_ended(group: Pid) -> bool {
    let start = Instant::now();
    while start.elapsed() < LEFT_OVER_GRACE {
        if test_kill_process_group(group).is_err() || members(group).is_empty() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    eprintln!("the test ended, but processes that it started still run:");
    for process in members(group) {
        eprintln!("  {} {}", process.id, process.name);
    }
    let _ = kill_process_group(group, Signal::KILL);
    false
}

struct Process {
    id: i32,
    name: String,
}

/// Returns the running processes of a group.
fn members(group: Pid) -> Vec<Process> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter_map(|id| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The line is `id (name) state parent group …`. It is split at its last `)`, because the name may contain any
        // characters.
        let (before_name, after) = stat.rsplit_once(')')?;
        let name = before_name.split_once('(')?.1.to_owned();
        let mut fields = after.split_whitespace();
        let is_zombie = fields.next()? == "Z";
        let process_group: i32 = fields.nth(1)?.parse().ok()?;
        (process_group == group.as_raw_nonzero().get() && !is_zombie).then_some(Process { id, name })
    })
    .collect()
}

fn print_stacks(group: Pid) {
    eprintln!("== time limit exceeded: stacks of the test and of the processes that it started");
    for process in members(group) {
        eprintln!("== process {} {}", process.id, process.name);
        let mut gdb = Command::new("gdb");
        gdb.args(["--batch", "--nx", "-iex", "set debuginfod enabled off", "-p", &process.id.to_string()]);
        gdb.args(["-ex", &format!("thread apply all backtrace {FRAMES_MAX}")]);
        // gdb gets its own process group, so that it does not count as a process of the group that it inspects.
        match gdb.process_group(0).stdin(Stdio::null()).stderr(Stdio::null()).output() {
            Ok(output) => eprintln!("{}", String::from_utf8_lossy(&output.stdout)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("gdb is not installed; each thread waits at this place in the kernel:");
                print_waits(process.id);
            }
            Err(error) => eprintln!("gdb: {error}"),
        }
    }
}

fn print_waits(id: i32) {
    for task in fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        eprintln!("  {} {}", read("comm").trim(), read("wchan").trim());
    }
}
