//! The command `dunlin task watch`, which prints events of tasks.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use dunlin_client::Client;
use dunlin_topic::{Event, Start, Subscribe, SubscribeOptions};
use serde_json::Value;

use crate::console::Console;
use crate::format::text::escaped;
use crate::format::{json, text};
use crate::outage::OutageReport;
use crate::signals::StopFlag;

/// Arguments of `dunlin task watch`, which prints events of tasks.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin task watch                        events of all tenants, from now on
  dunlin task watch --tenant acme --json   events of one tenant as JSON
  dunlin task watch --from earliest        all retained events

The events are records of the topic $tasks, which every protocol can read: dunlin sub '$tasks.acme'.")]
pub struct Arguments {
    /// Tenant of the tasks [default: all]
    #[arg(long)]
    tenant: Option<String>,
    /// Start: latest, earliest, a position EPOCH-SEQ, an RFC 3339 time, or an age such as 5m
    #[arg(long, value_name = "START", default_value = "latest", value_parser = crate::commands::parse::start)]
    from: Start,
    /// End after this number of events [default: no end]
    #[arg(long, short = 'n', value_name = "COUNT")]
    count: Option<usize>,
}

/// The interval at which the command checks whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub fn run(arguments: &Arguments, client: &Client, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    stop.set_when_stdout_closes();
    let pattern = format!("$tasks.{}", arguments.tenant.as_deref().unwrap_or(">"));
    let options = SubscribeOptions {
        name: "dunlin task watch".to_owned(),
        start: arguments.from,
        ..Default::default()
    };
    let Some(mut events) = stop.run_interruptible(|| Ok(client.subscribe(&pattern, options)?))? else {
        return Ok(());
    };
    let (mut out, mut remaining, mut outage) =
        (console.out(), arguments.count.unwrap_or(usize::MAX), OutageReport::default());
    while remaining > 0 && !stop.is_set() {
        outage.check_connection(client, console.errors)?;
        match events.next_timeout(POLL_INTERVAL) {
            Ok(None) => {}
            Ok(Some(Event::Record(record))) => {
                remaining -= 1;
                match console.json {
                    true => writeln!(out, "{}", String::from_utf8_lossy(record.payload()))?,
                    false => writeln!(out, "{}", event_line(record.payload()))?,
                }
                out.flush()?;
            }
            // Notices go to standard error, so that standard output contains only events of tasks.
            Ok(Some(Event::Notice(notice))) => match console.json {
                true => json::notice(&notice, &mut std::io::stderr())?,
                false => text::notice(&notice, true, console.errors, &mut std::io::stderr())?,
            },
            Err(error) => outage.handle_error(error, console.errors)?,
        }
    }
    Ok(())
}

fn event_line(record: &[u8]) -> String {
    let Ok(Value::Object(mut event)) = serde_json::from_slice(record) else {
        return escaped(record);
    };
    let mut take = |name: &str| event.remove(name).map_or_else(String::new, plain);
    let (task, tenant, kind) = (take("task"), take("tenant"), take("event"));
    drop(take("at_ms"));
    let rest: Vec<String> = event
        .into_iter()
        .map(|(name, value)| format!("{} {}", escaped(name.as_bytes()), plain(value)))
        .collect();
    format!("{task}\t{tenant}\t{kind}\t{}", rest.join(", ")).trim_end().to_owned()
}

fn plain(value: Value) -> String {
    match value {
        Value::String(text) => escaped(text.as_bytes()),
        other => escaped(other.to_string().as_bytes()),
    }
}
