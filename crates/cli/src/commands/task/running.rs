//! Runs the user's command for each task of a worker.
//!
//! - After the command of a task has ended or was killed, the task ends within [`OUTPUT_GRACE`], even if another
//!   process still holds the command's pipes.
//! - No process of the command's process group outlives the task. A process that has left this group (`setsid`) is not
//!   killed.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use dunlin_client::{AssignedTask, TaskUsage, scheduler};
use rustix::process::{Pid, Signal, kill_process_group};

use super::pipes::Pipes;
use super::show;
use super::usage::Usage;
use super::warden::Warden;
use crate::signals::StopFlag;

/// The longest interval between two checks of a running command.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a command may run after SIGTERM, before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// How long processes that the command has started may still write output after the command has ended.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
/// The exit code with which a command reports a failure that must not be retried.
const EXIT_CODE_PERMANENT: i32 = 100;
/// The maximum number of bytes of a command's standard error that are kept.
const ERROR_BYTES_MAX: usize = 4 << 10;

/// The size of the largest result that the cluster accepts, in bytes.
fn result_bytes_max() -> u32 {
    scheduler::SchedulerLimits::default().result_bytes_max
}

/// Runs the command that `dunlin task worker` was given, once for each task.
#[derive(Debug)]
pub struct CommandRunner<'r> {
    pub command: &'r [String],
    pub warden: &'r Warden,
    /// A flag that is set when the process that started the worker has ended.
    pub orphaned: &'r StopFlag,
}

/// Why the command of a task failed, and whether another attempt may succeed.
#[derive(Debug)]
pub struct CommandFailure {
    pub why: Vec<u8>,
    pub retry: bool,
}

impl CommandFailure {
    fn new(why: impl Into<Vec<u8>>) -> CommandFailure {
        CommandFailure { why: why.into(), retry: true }
    }
}

impl CommandRunner<'_> {
    /// Runs the command for a task. Returns the command's output or the failure, and the resources that it used.
    pub fn run(&self, task: &AssignedTask) -> (Result<Vec<u8>, CommandFailure>, TaskUsage) {
        let began = Instant::now();
        let (result, usage) = match start(self.command, task) {
            Ok((child, pipes)) => {
                self.warden.report_start(&child);
                self.supervise(child, pipes, task, began)
            }
            Err(error) => {
                let why = format!("cannot run {}: {error}", self.command[0]);
                (Err(CommandFailure::new(why)), TaskUsage::default())
            }
        };
        (result, TaskUsage { run: began.elapsed(), ..usage })
    }

    fn supervise(
        &self,
        mut child: Child,
        mut pipes: Pipes<'_>,
        task: &AssignedTask,
        began: Instant,
    ) -> (Result<Vec<u8>, CommandFailure>, TaskUsage) {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let usage = self.wait_for_end(pid, &mut pipes, task, began);
        let until = Instant::now() + OUTPUT_GRACE;
        while !pipes.are_drained() && Instant::now() < until && !self.orphaned.is_set() {
            pipes.transfer(POLL_INTERVAL);
        }
        // The ended process was not reaped yet, so no other process can have its number.
        signal(pid, Signal::KILL);
        self.warden.report_end(&child);
        let result = command_result(child.wait(), pipes);
        (result, TaskUsage { cpu: usage.cpu, memory_bytes: usage.memory_bytes, ..TaskUsage::default() })
    }

    /// Waits until the command has ended, and makes it end if the task is stopped or exceeds its time limit. The caller
    /// has to reap the process.
    fn wait_for_end(
        &self,
        pid: Option<Pid>,
        pipes: &mut Pipes<'_>,
        task: &AssignedTask,
        began: Instant,
    ) -> Usage {
        let (mut terminated_at, deadline) = (None, began + task.timeout());
        let (mut usage, mut check_at) = (Usage::default(), began);
        loop {
            let now = Instant::now();
            if now >= check_at {
                if usage.update(pid) {
                    return usage;
                }
                let is_over = task.is_stopped() || self.orphaned.is_set() || now >= deadline;
                if terminated_at.is_none() && is_over {
                    terminated_at = Some(now);
                    signal(pid, Signal::TERM);
                }
                if terminated_at.is_some_and(|terminated_at: Instant| terminated_at.elapsed() > GRACE) {
                    signal(pid, Signal::KILL);
                }
                check_at = now + (began.elapsed() / 20).clamp(Duration::from_micros(200), POLL_INTERVAL);
            }
            pipes.transfer(check_at.saturating_duration_since(now));
        }
    }
}

fn command_result(ended: std::io::Result<ExitStatus>, pipes: Pipes<'_>) -> Result<Vec<u8>, CommandFailure> {
    let (out, stderr) = pipes.into_output();
    let bytes_max = result_bytes_max();
    match ended.map(|status| (status.code(), status)) {
        Ok((Some(0), _)) if out.bytes > bytes_max.into() => {
            let bytes = out.bytes;
            Err(CommandFailure::new(format!(
                "the command wrote {bytes} bytes, more than result_bytes_max = {bytes_max}"
            )))
        }
        Ok((Some(0), _)) => Ok(out.kept),
        Ok((Some(code), _)) => {
            let why = [format!("exit code {code}: ").as_bytes(), stderr.kept.trim_ascii()].concat();
            Err(CommandFailure { why, retry: code != EXIT_CODE_PERMANENT })
        }
        Ok((None, status)) => Err(CommandFailure::new(format!("the command was killed: {status}"))),
        Err(error) => Err(CommandFailure::new(format!("cannot wait for the command: {error}"))),
    }
}

fn start<'g>(program: &[String], task: &'g AssignedTask) -> std::io::Result<(Child, Pipes<'g>)> {
    use std::os::unix::process::CommandExt;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut command = Command::new(&program[0]);
    command
        .args(&program[1..])
        .env("DUNLIN_TASK", show::hex(task.task()))
        .env("DUNLIN_TASK_TOKEN", task.token().to_string())
        .env("DUNLIN_TASK_ATTEMPT", task.attempt().to_string())
        .env("DUNLIN_TASK_KIND", text(task.kind()))
        .env("DUNLIN_TASK_TENANT", text(task.tenant()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Each command is in a process group of its own, so Ctrl-C reaches only the worker, which then ends its
        // commands.
        .process_group(0);
    let mut child = command.spawn()?;
    match Pipes::of(&mut child, task.payload(), result_bytes_max() as usize, ERROR_BYTES_MAX) {
        Ok(pipes) => Ok((child, pipes)),
        Err(error) => {
            child.kill()?;
            child.wait()?;
            Err(error)
        }
    }
}

fn signal(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        // The call fails if the process has already ended.
        let _ = kill_process_group(pid, signal);
    }
}
