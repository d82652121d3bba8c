//! The command `dunlin lock`, which runs another command while it holds a lock.
//!
//! No process of the command's process group runs after `dunlin lock` has released the lock, or while another holder
//! may have the lock.

pub mod guard;

use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use dunlin_client::{Kv, KvError, Lease, LeaseLostError};
use dunlin_wire::ErrorCode;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, low_level};

use self::guard::LockedProgram;

use crate::arguments::GlobalOptions;
use crate::commands::parse::ttl;
use crate::connect::connect;
use crate::console::Console;
use crate::outcome::ErrorWithAdvice;

/// The interval at which `dunlin lock` checks whether the command has ended and the lease still exists.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long the command may take to end after a signal, before it is killed with SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// The command is asked to end before the lease ends. The time between the two is `--ttl` divided by this number, but
/// at most [`GRACE`].
const NOTICE_DIVISOR: u32 = 4;

/// Arguments of `dunlin lock`, which runs a command while it holds a lock.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin lock backup -- ./backup.sh             wait for the lock, then run
  dunlin lock backup --no-wait -- ./backup.sh   run only if the lock is free
  dunlin lock deploy --ttl 30s -- sh -c 'store --token $DUNLIN_LOCK_TOKEN'

When the command ends, `dunlin lock` releases the lock and ends with the command's exit code. The command runs in its own
process group. Before the release, all processes of that group are killed; use `setsid` for a process that must survive.
Ctrl-Z has no effect.

SIGTERM, SIGHUP, SIGINT and SIGQUIT are forwarded to the group, which is killed after 2 s. If `dunlin lock` itself is
killed, a guard process kills the group at once.

If the node is unreachable for --ttl, the lock is free for others. The group receives SIGTERM a quarter of --ttl (at most
2 s) before that moment, and SIGKILL at that moment. The exit code is then 2.

DUNLIN_LOCK_TOKEN is the fencing token, which grows with each holder. A service that the lock protects should refuse a
token that is lower than the highest it has received.")]
pub struct Arguments {
    /// Name of the lock
    pub name: String,
    /// Time to live of the lease: after this time without a connection, the lock is lost
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = ttl)]
    pub ttl: Duration,
    /// Value of this holder, shown to others [default: host name and process id]
    #[arg(long)]
    pub value: Option<String>,
    /// Do not wait; end with exit code 1 if another process holds the lock
    #[arg(long)]
    pub no_wait: bool,
    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Returns the value that identifies the holder of a lock: `value` if given, otherwise the host name and the process
/// id.
pub fn holder_value(value: Option<&str>) -> String {
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    value.map_or_else(|| format!("{} {}", host(), std::process::id()), str::to_owned)
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, _console: &Console) -> Result<()> {
    let kv = connect(global, "dunlin lock")?.kv();
    let mut lease = kv.lease(arguments.ttl)?;
    lease.start_renewal().context("cannot start the thread that renews the lease")?;
    let value = holder_value(arguments.value.as_deref());
    let lock = match arguments.no_wait {
        true => kv
            .try_lock(&arguments.name, &lease, value.as_bytes())
            .map_err(|error| add_holder(&kv, &arguments.name, error))?,
        false => kv.lock(&arguments.name, &lease, value.as_bytes())?,
    };
    let signals = Signals::listen()?;
    let mut guard = LockedProgram::start(lease.check()?).context("cannot start the guard process")?;
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]).env("DUNLIN_LOCK_TOKEN", lock.token().to_string());
    let mut child =
        guard.spawn(&mut command).with_context(|| format!("cannot start {}", arguments.command[0]))?;
    let end = supervise(&mut child, &mut guard, &lease, &signals);
    guard.end(&mut child);
    // If the release fails, the lock becomes free when the lease ends. If the lease was lost, the lock is already free.
    if !matches!(end, Ok(End::Lost(_))) {
        let _ = lock.release();
    }
    drop(lease);
    let status = match end? {
        End::Ended(status) => status,
        End::Signalled(signal) => return Ok(low_level::emulate_default_handler(signal)?),
        End::Lost(lost) => return Err(anyhow::Error::from(lost).context("the lock is lost")),
    };
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => std::process::exit(code),
        None => Err(anyhow!("{} was killed: {status}", arguments.command[0])),
    }
}

/// Adds the name of the current holder to the error, if the lock has a holder.
fn add_holder(kv: &Kv, name: &str, error: KvError) -> anyhow::Error {
    let KvError::Held { token, .. } = error else { return error.into() };
    let Ok(Some(holder)) = kv.holder(name) else { return error.into() };
    let holder_text = String::from_utf8_lossy(&holder.value).into_owned();
    let message = format!("lock {name} is held by {holder_text:?}, with token {token}");
    let advice = "Run the command without --no-wait to wait for the lock.".to_owned();
    ErrorWithAdvice { code: ErrorCode::LockHeld, message, advice }.into()
}

/// Why the command has ended, or has to end.
#[derive(Debug)]
enum End {
    Ended(ExitStatus),
    Signalled(i32),
    Lost(LeaseLostError),
}

/// The signals that end `dunlin lock`.
#[derive(Debug)]
struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Installs the signal handlers. A signal that was ignored when this process started, for example because of
    /// `nohup`, stays ignored.
    fn listen() -> Result<Signals> {
        let received = Arc::new(AtomicUsize::new(0));
        let ignored = ignored();
        for signal in [SIGTERM, SIGHUP, SIGINT, SIGQUIT].into_iter().filter(|at| ignored >> (at - 1) & 1 == 0)
        {
            flag::register_usize(signal, Arc::clone(&received), signal as usize)
                .context("cannot listen for signals")?;
        }
        Ok(Signals(received))
    }

    /// Returns the last received signal and clears it.
    fn take(&self) -> Option<i32> {
        i32::try_from(self.0.swap(0, Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }
}

/// Returns a mask with a bit for each signal that this process ignores; 0 if these signals are unknown.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Waits for the command. After a signal or the loss of the lease, ends the command within the grace period.
fn supervise(child: &mut Child, guard: &mut LockedProgram, lease: &Lease, signals: &Signals) -> Result<End> {
    let notice = (lease.ttl() / NOTICE_DIVISOR).min(GRACE);
    let mut ending: Option<(End, Instant)> = None;
    loop {
        let ended = child.try_wait().context("cannot wait for the command")?;
        let until = lease.check();
        if let Ok(until) = &until {
            guard.extend(*until);
        }
        let lease_end = until.as_ref().ok().copied();
        let (now, signal) = (Instant::now(), signals.take());
        match (ending, ended) {
            (Some((end, _)), Some(_)) => return Ok(end),
            (None, Some(status)) => return Ok(End::Ended(status)),
            (Some((end, kill_at)), None) if now >= kill_at.min(lease_end.unwrap_or(now)) => return Ok(end),
            (before, None) => ending = before,
        }
        if let Some(signal) = signal {
            guard.signal(Signal::from_named_raw(signal).unwrap_or(Signal::TERM));
            ending = ending.or(Some((End::Signalled(signal), now + GRACE)));
        }
        if ending.is_none() && lease_end.is_none_or(|lease_end| now + notice >= lease_end) {
            guard.signal(Signal::TERM);
            ending = Some((End::Lost(lost(lease, until.err())), lease_end.unwrap_or(now)));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn lost(lease: &Lease, lost: Option<LeaseLostError>) -> LeaseLostError {
    let why = || "the cluster was unreachable, so the lease was not renewed".to_owned();
    lost.unwrap_or_else(|| LeaseLostError { lease: lease.id(), why: why() })
}
