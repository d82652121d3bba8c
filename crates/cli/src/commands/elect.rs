//! The command `dunlin elect`, which takes part in an election.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::arguments::GlobalOptions;
use crate::commands::kv::to_json;
use crate::commands::lock::holder_value;
use crate::commands::parse::ttl;
use crate::connect::connect;
use crate::console::Console;
use crate::format::text::escaped;
use crate::outcome::CommandRefusal;
use crate::signals::StopFlag;

/// The interval at which the command checks whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `dunlin elect`, which takes part in an election.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin elect leader                           wait to be elected; stay elected until Ctrl-C
  dunlin elect leader --value host-1:8080       set a value for others to see
  dunlin elect leader --show                    print the elected candidate

When this candidate is elected, the command prints the candidate's value and a fencing token, which grows with each
election.

Exit code 2 means that the lease was not renewed within --ttl, so that another candidate may be elected.")]
pub struct Arguments {
    /// Name of the election
    pub name: String,
    /// Time to live of the lease: after this time without a connection, another candidate may be elected
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = ttl)]
    pub ttl: Duration,
    /// Value of this candidate, shown to others [default: host name and process id]
    #[arg(long)]
    pub value: Option<String>,
    /// Print the elected candidate and end; exit code 1 if no candidate is elected
    #[arg(long)]
    pub show: bool,
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let kv = connect(global, "dunlin elect")?.kv();
    if arguments.show {
        let holder = kv.holder(&arguments.name)?;
        let holder = holder.ok_or_else(|| {
            CommandRefusal(format!("election {:?} has no elected candidate", arguments.name))
        })?;
        return print_candidate(&holder.value, holder.created, console);
    }
    let mut lease = kv.lease(arguments.ttl)?;
    lease.start_renewal().context("cannot start the thread that renews the lease")?;
    let value = holder_value(arguments.value.as_deref());
    let lock = kv.lock(&arguments.name, &lease, value.as_bytes())?;
    let stop = StopFlag::on_signal()?;
    print_candidate(value.as_bytes(), lock.token(), console)?;
    while !stop.is_set() {
        if let Some(lost) = lease.wait_lost(POLL_INTERVAL) {
            return Err(anyhow::Error::from(lost).context("this candidate is no longer elected"));
        }
    }
    Ok(lock.release()?)
}

fn print_candidate(value: &[u8], token: u64, console: &Console) -> Result<()> {
    let mut out = console.out();
    if console.json {
        writeln!(out, "{}", json!({"value": to_json(value), "token": token}))?;
    } else {
        writeln!(out, "{} is elected, token {token}", escaped(value))?;
    }
    Ok(out.flush()?)
}
