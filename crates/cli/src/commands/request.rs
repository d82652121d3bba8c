//! The command `dunlin req`, which sends a request and prints its reply.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin_client::{Reply, RequestError};
use dunlin_topic::{Draft, Payload, RecordMeta};
use serde_json::json;

use crate::arguments::GlobalOptions;
use crate::commands::parse::{header, positive_duration};
use crate::connect::connect;
use crate::console::Console;
use crate::format::base64;
use crate::format::text::payload;
use crate::input::read_all;
use crate::outcome::CommandRefusal;

/// Arguments of `dunlin req`, which sends a request and prints the reply.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin req time.now                            send an empty request
  dunlin req math.square 12 --timeout 200ms
  dunlin req img.scale - --header width=100 < cat.jpg > small.jpg

Standard output receives the bytes of the reply. On a terminal, control characters are escaped and a newline is added.

Exit code 1 means that no reply arrived in time, or that the reply has the header dunlin-error.")]
pub struct Arguments {
    /// Subject to send the request to
    pub subject: String,
    /// Payload of the request; `-` is standard input [default: empty]
    pub text: Option<String>,
    /// Header of the request; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// Maximum time to wait for the reply
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = positive_duration)]
    pub timeout: Duration,
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let client = connect(global, "dunlin req")?;
    let headers: Vec<(&str, &[u8])> =
        arguments.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let payload = read_payload(arguments)?;
    let meta = RecordMeta { headers: &headers, ..RecordMeta::default() };
    let draft = Draft { meta, payload: Payload::Copied(&payload) };
    let reply = client.request(&arguments.subject, draft, arguments.timeout).map_err(request_error)?;
    write(&reply, console)?;
    let error = reply.headers.iter().find(|(name, _)| name == ERROR_HEADER);
    match error {
        None => Ok(()),
        Some((_, why)) => {
            Err(CommandRefusal(format!("the reply is an error: {}", String::from_utf8_lossy(why))).into())
        }
    }
}

/// The header with which a reply reports an error in place of a result.
pub const ERROR_HEADER: &str = "dunlin-error";

fn request_error(error: RequestError) -> anyhow::Error {
    match error {
        RequestError::NoResponder(_) | RequestError::TimedOut(_) => CommandRefusal(error.to_string()).into(),
        RequestError::Publish(error) => error.into(),
        RequestError::Inbox(error) => error.into(),
        other => other.into(),
    }
}

fn read_payload(arguments: &Arguments) -> Result<Vec<u8>> {
    match arguments.text.as_deref() {
        Some("-") => read_all(std::io::stdin().lock()).context("cannot read standard input"),
        Some(text) => Ok(text.as_bytes().to_vec()),
        None => Ok(Vec::new()),
    }
}

fn write(reply: &Reply, console: &Console) -> Result<()> {
    let mut out = console.out();
    if console.json {
        let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => json!({ "text": text }),
            Err(_) => json!({ "base64": base64(bytes) }),
        };
        let header = |(name, value): &(String, Vec<u8>)| json!({"name": name, "value": text(value)});
        let headers: Vec<_> = reply.headers.iter().map(header).collect();
        writeln!(out, "{}", json!({"payload": text(&reply.payload), "headers": headers}))?;
    } else {
        payload(&reply.payload, console.is_terminal, &mut out)?;
        if console.is_terminal && !reply.payload.ends_with(b"\n") {
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}
