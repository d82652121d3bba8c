//! `lock`: a command that runs while a lock is held.

use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use dunlin_client::{Kv, KvError, Lease};
use dunlin_wire::ErrorCode;
use rustix::process::{Pid, Signal, kill_process};

use crate::arguments::Global;
use crate::commands::parse::duration;
use crate::connect::connect;
use crate::console::Console;
use crate::outcome::Advised;

/// How often the command and the lease are looked at.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin lock backup -- ./backup.sh             wait for the lock, then run
  dunlin lock backup --no-wait -- ./backup.sh   or do not run at all
  dunlin lock deploy --ttl 30s -- sh -c 'store --token $DUNLIN_LOCK_TOKEN'

The lock is let go when the command ends, and its exit code is ours. Should this node be lost to
the cluster for --ttl, another gets the lock: the command is sent SIGTERM then, and the exit code
is 2. DUNLIN_LOCK_TOKEN grows from holder to holder: whatever the lock guards refuses a lower one
than it was shown before.")]
pub struct Arguments {
    /// The lock
    pub name: String,
    /// How long it stays ours when nobody hears from us
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub ttl: Duration,
    /// What others see of the holder [default: host and process]
    #[arg(long)]
    pub value: Option<String>,
    /// Exit code 1 when another holds it
    #[arg(long)]
    pub no_wait: bool,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Who we are, for others to see.
pub fn ourselves(value: Option<&str>) -> String {
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    value.map_or_else(|| format!("{} {}", host(), std::process::id()), str::to_owned)
}

pub fn run(arguments: &Arguments, global: &Global, _console: &Console) -> Result<()> {
    let kv = connect(global, "dunlin lock")?.kv();
    let mut lease = kv.lease(arguments.ttl)?;
    lease.keep().context("cannot start a thread")?;
    let value = ourselves(arguments.value.as_deref());
    let lock = match arguments.no_wait {
        true => kv
            .try_lock(&arguments.name, &lease, value.as_bytes())
            .map_err(|error| held_by(&kv, &arguments.name, error))?,
        false => kv.lock(&arguments.name, &lease, value.as_bytes())?,
    };
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]).env("DUNLIN_LOCK_TOKEN", lock.token().to_string());
    let child = command.spawn().with_context(|| format!("cannot start {}", arguments.command[0]))?;
    let status = watch_over(child, &lease)?;
    // What is lost of these two ends by its time.
    let _ = lock.release();
    drop(lease);
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => std::process::exit(code),
        None => Err(anyhow!("{} was ended: {status}", arguments.command[0])),
    }
}

/// Who has the lock says so in its value; whoever let it go meanwhile is not named.
fn held_by(kv: &Kv, name: &str, error: KvError) -> anyhow::Error {
    let KvError::Held { token, .. } = error else { return error.into() };
    let Ok(Some(holder)) = kv.holder(name) else { return error.into() };
    let who = String::from_utf8_lossy(&holder.value).into_owned();
    let said = format!("lock {name} is held by {who:?}, with token {token}");
    let advice = "Wait for the lock, as without --no-wait, or do something else.".to_owned();
    Advised { code: ErrorCode::LockHeld, said, advice }.into()
}

/// Waits for the command; it is told to end when the lease is lost.
fn watch_over(mut child: Child, lease: &Lease) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the command")? {
            return Ok(status);
        }
        if let Some(lost) = lease.wait_lost(LOOK) {
            end(&mut child);
            return Err(anyhow::Error::from(lost).context("the lock is not ours any more"));
        }
    }
}

fn end(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, Signal::TERM);
    }
    let _ = child.wait();
}
