//! The command `dunlin pub`, which publishes its arguments, the lines of standard input, or files.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use dunlin_topic::{PublishError, RecordMeta, Subject};
use serde_json::json;

use crate::arguments::GlobalOptions;
use crate::commands::owners::no_topic_error;
use crate::commands::parse::{duration, header, moment, positive_duration, rate, unix_ns};
use crate::connect::connect;
use crate::console::{Console, grouped};
use crate::input::Input;
use crate::outcome::CommandRefusal;
use crate::sender::{CountingPublisher, RecordSender, SendCounts};
use crate::signals::{GRACE, StopFlag};

/// Arguments of `dunlin pub`, which publishes records.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin pub greetings hello 'hello again'       publish two records
  yes tick | dunlin pub ticks                    publish each line as a record
  dunlin pub photos --file cat.jpg --file dog.jpg
  dunlin pub orders.eu.1042 '{\"qty\":5}' --key 1042 --header trace=7f3a
  dunlin pub ticks tick --repeat 1000 --rate 100   100 records per second
  dunlin pub config v2 --expect-seq 41           publish only if 41 is the last sequence number

The command ends with a line on standard error: the number of acknowledged records and the last position. With --json,
it prints an object with these values on standard output instead. Ctrl-C also ends with this output.

If the node is unreachable, the command reconnects and sends the records that were not acknowledged again. The node
recognises records that it already has. If the node has no room, the command sends the refused records again, in the
same order.

Exit code 2 means that some records were sent, and it is unknown whether the node stored them.")]
pub struct Arguments {
    /// Subject to publish to
    pub subject: String,
    /// Payloads, one record each; without payloads and files, each line of standard input is a record
    pub texts: Vec<String>,
    /// File to publish as one record; `-` is standard input; may be given several times
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    pub file: Vec<PathBuf>,
    /// File to publish line by line, one record each; `-` is standard input; may be given several times
    #[arg(long, value_name = "FILE", conflicts_with_all = ["texts", "file"])]
    pub lines: Vec<PathBuf>,
    /// Key of the records; it selects the partition, and groups deliver records with the same key in order
    #[arg(long)]
    pub key: Option<String>,
    /// Header of the records; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// Event time of the records: RFC 3339, such as 2026-11-20T09:30:00Z, or `now`
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub event_time: Option<std::time::SystemTime>,
    /// Time after which the records expire: subscribers do not receive them any more [default: never]
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    pub expires_in: Option<Duration>,
    /// Subject for replies to the records
    #[arg(long, value_name = "SUBJECT")]
    pub reply: Option<String>,
    /// Publish only if the log's last record has this sequence number
    #[arg(long, value_name = "SEQ", conflicts_with_all = ["repeat", "file", "lines"])]
    pub expect_seq: Option<u64>,
    /// Number of times to publish all records
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub repeat: u64,
    /// Maximum number of records per second [default: no limit]
    #[arg(long, value_name = "RECORDS_PER_SECOND", value_parser = rate)]
    pub rate: Option<f64>,
    /// Maximum time to retry while the node has no room for the records; 0s means no retry [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub patience: Option<Duration>,
    /// Print nothing on success
    #[arg(long, short)]
    pub quiet: bool,
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    Subject::parse(&arguments.subject)?;
    let client = connect(global, "dunlin pub")?;
    let publisher = || {
        client.publisher(&arguments.subject).map_err(|error| match error {
            PublishError::NoTopic(_) => no_topic_error(&client, &arguments.subject, error.into()),
            other => other.into(),
        })
    };
    let Some(publisher) = stop.run_interruptible(publisher)? else { return Ok(()) };
    let headers: Vec<(&str, &[u8])> =
        arguments.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let meta = RecordMeta {
        event_time_ns: arguments.event_time.map(unix_ns),
        expires_ns: arguments.expires_in.map(|after| unix_ns(SystemTime::now() + after)),
        key: arguments.key.as_ref().map(String::as_bytes),
        reply: arguments.reply.as_deref(),
        headers: &headers,
        ..RecordMeta::default()
    };
    let mut sender =
        RecordSender::new(publisher, meta, arguments.rate, arguments.patience, stop.clone(), console.errors);
    let sent = stop.run_interruptible_after(GRACE, || {
        publish(arguments, &mut sender, &stop).and_then(|()| sender.flush())
    });
    let outcome = sent.and_then(|sent| sent.context("interrupted before the node acknowledged all records"));
    let counts = sender.counts();
    let nothing_done = counts.sent == 0 && outcome.is_err();
    if !nothing_done && (!arguments.quiet || counts.acknowledged < counts.sent) {
        print_counts(&counts, arguments, console)?;
    }
    outcome
}

fn publish<P: CountingPublisher>(
    arguments: &Arguments,
    sender: &mut RecordSender<'_, P>,
    stop: &StopFlag,
) -> Result<()> {
    if let Some(last_seq) = arguments.expect_seq {
        let [text] = arguments.texts.as_slice() else {
            return Err(CommandRefusal(format!(
                "--expect-seq needs exactly one payload, not {}",
                arguments.texts.len()
            ))
            .into());
        };
        return sender.send_expecting(last_seq, text.as_bytes());
    }
    let from_input = arguments.texts.is_empty() && arguments.file.is_empty() && arguments.lines.is_empty();
    if from_input {
        return sender.send_lines(&Input::new(std::io::stdin(), stop.clone())).map(drop);
    }
    for _ in 0..arguments.repeat {
        if !publish_once(arguments, sender, stop)? {
            break;
        }
    }
    Ok(())
}

fn publish_once<P: CountingPublisher>(
    arguments: &Arguments,
    sender: &mut RecordSender<'_, P>,
    stop: &StopFlag,
) -> Result<bool> {
    for text in &arguments.texts {
        if !sender.send(text.as_bytes())? {
            return Ok(false);
        }
    }
    for path in &arguments.file {
        let Some(bytes) = read_all(path, stop)? else { return Ok(false) };
        if !sender.send(&bytes)? {
            return Ok(false);
        }
    }
    for path in &arguments.lines {
        if !sender.send_lines(&open_input(path, stop)?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Opens a file, or standard input for `-`.
pub fn open_input(path: &Path, stop: &StopFlag) -> Result<Input> {
    if path.as_os_str() == "-" {
        return Ok(Input::new(std::io::stdin(), stop.clone()));
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Input::new(file, stop.clone()))
}

fn read_all(path: &Path, stop: &StopFlag) -> Result<Option<Vec<u8>>> {
    open_input(path, stop)?.all().with_context(|| format!("cannot read {}", path.display()))
}

/// Prints the number of acknowledged records, and the number of records whose outcome is unknown.
fn print_counts(counts: &SendCounts, arguments: &Arguments, console: &Console) -> Result<()> {
    let unacknowledged = counts.sent - counts.acknowledged;
    if console.json {
        let last = counts.last.map(|receipt| receipt.position);
        let object = json!({
            "subject": arguments.subject, "acknowledged": counts.acknowledged, "not_acknowledged": unacknowledged,
            "epoch": last.map(|last| last.epoch), "seq": last.map(|last| last.seq),
            "partition": counts.last.map(|receipt| receipt.partition),
            "duplicate": counts.last.is_some_and(|receipt| receipt.duplicate),
        });
        return Ok(writeln!(std::io::stdout(), "{object}")?);
    }
    let mut err = std::io::stderr();
    let records = if counts.acknowledged == 1 { "record" } else { "records" };
    let at = counts.last.map_or_else(String::new, |receipt| {
        let duplicate_note = if receipt.duplicate { ", which the node already had" } else { "" };
        format!(", last {}{duplicate_note}", receipt.position)
    });
    let mark = console.errors.good("published");
    writeln!(err, "{mark} {} {records} to {}{at}", grouped(counts.acknowledged), arguments.subject)?;
    if unacknowledged > 0 {
        let mark = console.errors.warning("not acknowledged:");
        writeln!(err, "{mark} {} more", grouped(unacknowledged))?;
    }
    Ok(())
}
