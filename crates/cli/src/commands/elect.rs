//! `elect`: to be the one of many.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::arguments::Global;
use crate::commands::kv::shown;
use crate::commands::lock::ourselves;
use crate::commands::parse::ttl;
use crate::connect::connect;
use crate::console::Console;
use crate::format::text::escaped;
use crate::outcome::Refusal;
use crate::signals::Stop;

/// How soon it is noticed that it is time to end.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin elect leader                           wait to be elected, stay so until Ctrl-C
  dunlin elect leader --value host-1:8080       what others see
  dunlin elect leader --show                    who is elected, by now

A line says when we are elected, with a token that grows from one elected to the next. Exit code 2
when the cluster did not hear from us for --ttl, and elected another.")]
pub struct Arguments {
    /// The election
    pub name: String,
    /// How long we stay elected when nobody hears from us
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = ttl)]
    pub ttl: Duration,
    /// What others see of us [default: host and process]
    #[arg(long)]
    pub value: Option<String>,
    /// Only show who is elected; exit code 1 when nobody is
    #[arg(long)]
    pub show: bool,
}

pub fn run(arguments: &Arguments, global: &Global, console: &Console) -> Result<()> {
    let kv = connect(global, "dunlin elect")?.kv();
    if arguments.show {
        let holder = kv.holder(&arguments.name)?;
        let holder = holder.ok_or_else(|| Refusal(format!("nobody is elected {:?}", arguments.name)))?;
        return tell(&holder.value, holder.created, console);
    }
    let mut lease = kv.lease(arguments.ttl)?;
    lease.keep().context("cannot start a thread")?;
    let value = ourselves(arguments.value.as_deref());
    let lock = kv.lock(&arguments.name, &lease, value.as_bytes())?;
    let stop = Stop::on_signal()?;
    tell(value.as_bytes(), lock.token(), console)?;
    while !stop.is_set() {
        if let Some(lost) = lease.wait_lost(LOOK) {
            return Err(anyhow::Error::from(lost).context("no longer elected"));
        }
    }
    Ok(lock.release()?)
}

fn tell(value: &[u8], token: u64, console: &Console) -> Result<()> {
    let mut out = console.out();
    if console.json {
        writeln!(out, "{}", json!({"value": shown(value), "token": token}))?;
    } else {
        writeln!(out, "{} is elected, token {token}", escaped(value))?;
    }
    Ok(out.flush()?)
}
