//! The guard process of `dunlin lock`. It kills the command that runs under the lock if `dunlin lock` itself is killed,
//! or when the lease of the lock ends.

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::process::{Pid, Signal, getpgid, getpgrp, getppid, kill_process_group, test_kill_process_group};
use rustix::stdio::stdin;
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};
use signal_hook::flag;

const READY: u8 = b'+';
/// How long [`LockedProgram::end`] waits for killed processes to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which [`LockedProgram::end`] checks whether the killed processes have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The guard process of `dunlin lock`, and the process group of the guard and the command. Dropping the value kills all
/// processes of the group.
#[derive(Debug)]
pub struct LockedProgram {
    process: Child,
    group: Pid,
    pipe: Option<ChildStdin>,
    deadline: Option<Instant>,
}

impl LockedProgram {
    /// Starts the guard process: this program with the command `lock-guard`. The command will belong to the guard's
    /// process group. At `deadline`, the guard kills this group; [`extend`](Self::extend) postpones the deadline.
    pub fn start(deadline: Instant) -> Result<LockedProgram> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("lock-guard")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = process.stdin.take();
        let group = process_id(&process)?;
        let mut message = [0];
        // The guard writes a byte once it has installed handlers for the signals that would otherwise end the guard.
        let outcome = process.stdout.take().map(|mut out| out.read_exact(&mut message));
        let mut guard = LockedProgram { process, group, pipe, deadline: None };
        if !matches!(outcome, Some(Ok(()))) || message != [READY] {
            bail!("the guard process ended before it was ready");
        }
        guard.extend(deadline);
        Ok(guard)
    }

    /// Starts the command in the guard's process group. If `dunlin lock` runs in the foreground of a terminal, the
    /// group becomes the terminal's foreground group.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        let child = command.process_group(self.group.as_raw_nonzero().get()).spawn()?;
        let is_on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        if is_on_terminal && tcgetpgrp(stdin()) == Ok(getpgrp()) {
            tcsetpgrp(stdin(), self.group).context("cannot give the terminal to the command")?;
        }
        Ok(child)
    }

    /// Sets a new deadline, at which the guard kills its process group.
    pub fn extend(&mut self, deadline: Instant) {
        let is_new = self.deadline.replace(deadline) != Some(deadline);
        if let Some(pipe) = self.pipe.as_mut().filter(|_| is_new) {
            let left = deadline.saturating_duration_since(Instant::now());
            // If the guard has ended, the write fails. This does no harm: the guard is needed only if `dunlin lock` is
            // killed.
            let _ = pipe.write_all(&(now() + left.as_nanos() as u64).to_le_bytes());
        }
    }

    /// Sends a signal to the command and its child processes.
    pub fn signal(&self, signal: Signal) {
        // The call fails if all processes of the group have ended.
        let _ = kill_process_group(self.group, signal);
    }

    /// Kills all remaining processes of the group and waits until they have ended.
    pub fn end(mut self, command: &mut Child) {
        self.kill();
        let _ = command.wait();
        let until = Instant::now() + EXIT_TIMEOUT;
        while test_kill_process_group(self.group).is_ok() && Instant::now() < until {
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn kill(&mut self) {
        // When the pipe closes, the guard gives the terminal back and then kills the group.
        self.pipe = None;
        let _ = self.process.wait();
        self.signal(Signal::KILL);
    }
}

impl Drop for LockedProgram {
    fn drop(&mut self) {
        if self.pipe.is_some() {
            self.kill();
        }
    }
}

fn process_id(child: &Child) -> Result<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("the guard process has no process id")
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Runs the guard process until it kills its process group.
pub fn run() -> Result<()> {
    let holder = getpgid(getppid())
        .context("cannot find the parent's process group: only `dunlin lock` may start this process")?;
    let suspended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2] {
        flag::register(signal, Arc::default())?;
    }
    flag::register(SIGTSTP, Arc::clone(&suspended))?;
    let mut out = io::stdout();
    out.write_all(&[READY])?;
    out.flush()?;
    let _ = watch(&suspended);
    if let Ok(terminal) = fs::File::open("/dev/tty")
        && tcgetpgrp(&terminal) == Ok(getpgrp())
    {
        let _ = tcsetpgrp(&terminal, holder);
    }
    Ok(kill_process_group(getpgrp(), Signal::KILL)?)
}

/// Waits until `dunlin lock` has closed the pipe or the deadline has passed.
fn watch(suspended: &AtomicBool) -> Result<(), Errno> {
    let pipe = stdin();
    let (mut deadline, mut message, mut filled) = (None, [0; 8], 0);
    loop {
        let left = deadline.map(|deadline: u64| deadline.saturating_sub(now()));
        if left == Some(0) {
            return Ok(());
        }
        let left = left.map(|left| Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as _,
        });
        let readable = poll(&mut [PollFd::new(&pipe, PollFlags::IN)], left.as_ref());
        if suspended.swap(false, Ordering::Relaxed) {
            // Continues stopped processes, because a stopped command would hold the lock without using it.
            let _ = kill_process_group(getpgrp(), Signal::CONT);
        }
        match readable
            .and_then(|ready| if ready == 0 { Err(Errno::INTR) } else { read(pipe, &mut message[filled..]) })
        {
            Ok(0) => return Ok(()),
            Ok(bytes) => filled += bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if filled == message.len() {
            (deadline, filled) = (Some(u64::from_le_bytes(message)), 0);
        }
    }
}
