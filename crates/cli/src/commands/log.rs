//! `log dump`: prints the retained records of a topic, or the files of durable topics.

mod files;

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result};
use dunlin_client::{Client, TopicDescription};
use dunlin_topic::{Event, LogName, Notice, Record, Start, Subscribe, SubscribeOptions};

use crate::arguments::Global;
use crate::commands::parse;
use crate::connect::connect;
use crate::console::Console;
use crate::format::{EventPrinter, Format, Interpreters, rfc3339, text};
use crate::signals::StopFlag;

/// Arguments of `dunlin log`, which prints the records of a topic's log.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print all retained records with position, times, key and headers
    #[command(after_help = "\
Examples:
  dunlin log dump ticks
  dunlin log dump orders --from 10m --count 100
  dunlin log dump ticks --json | jq -r .append_time_ns
  dunlin log dump /var/lib/dunlin             read a data directory

Each line shows one record: PARTITION/POSITION, append time and subject; then event=, expires=, reply=, key= and headers,
if the record has them; then a bar and the payload.")]
    Dump(Dump),
}

#[derive(Debug, clap::Args)]
struct Dump {
    /// Topic, or a node's data directory, or the directory of one log in it
    topic: String,
    /// Start: earliest, a position EPOCH-SEQ to start after, an RFC 3339 time, or an age such as 5m
    #[arg(long, value_name = "START", default_value = "earliest", value_parser = parse::start)]
    from: Start,
    /// Maximum number of records [default: all]
    #[arg(long, short = 'n', value_name = "COUNT")]
    count: Option<u64>,
}

pub fn run(arguments: &Arguments, global: &Global, console: &Console) -> Result<()> {
    let Verb::Dump(dump) = &arguments.verb;
    let stop = StopFlag::on_signal()?;
    if files::is_path(&dump.topic) {
        return files::dump(dump, &writer(console, None), console, &stop);
    }
    let topic = &dump.topic;
    let topic_hint = || format!("{topic} is not a directory on this machine, so it was taken as a topic");
    let client = connect(global, "dunlin log dump").with_context(topic_hint)?;
    let described = client.describe_topic(topic).with_context(topic_hint)?;
    dump_topic(dump, &client, &described, console, &stop)
}

fn dump_topic(
    dump: &Dump,
    client: &Client,
    topic: &TopicDescription,
    console: &Console,
    stop: &StopFlag,
) -> Result<()> {
    let pattern = topic.config.pattern.as_deref().unwrap_or(&topic.name);
    let options =
        SubscribeOptions { name: "dunlin log dump".to_owned(), start: dump.from, ..Default::default() };
    let mut subscriber = client.subscribe(pattern, options)?;
    let mut ends = LogEnds::of(topic);
    let writer = writer(console, Some(client));
    let mut out = console.out();
    let mut written = 0;
    while !ends.are_reached() && dump.count.is_none_or(|count| written < count) && !stop.is_set() {
        // If no event arrives within this time, the remaining records have left the log.
        let Some(event) = subscriber.next_timeout(std::time::Duration::from_secs(2))? else { break };
        written += u64::from(matches!(&event, Event::Record(record) if !ends.is_past(record)));
        match &event {
            Event::Record(record) if ends.is_past(record) => {}
            Event::Record(record) if console.json => writer.record(record, None, &mut out)?,
            Event::Record(record) => write_line(record, &writer.interpreters, console, &mut out)?,
            Event::Notice(notice) => writer.notice(notice, &mut out, &mut std::io::stderr())?,
        }
        ends.advance(&event);
    }
    Ok(out.flush()?)
}

fn writer(console: &Console, client: Option<&Client>) -> EventPrinter {
    EventPrinter {
        format: if console.json { Format::Json } else { Format::Text },
        delimiter: String::new(),
        several_logs: true,
        is_terminal: console.is_terminal,
        interpreters: client.map(Interpreters::of).unwrap_or_default(),
        paint: console.paint,
        errors: console.errors,
    }
}

/// The last sequence number of each log when the command started. Later records are not printed.
struct LogEnds(BTreeMap<u16, u64>);

impl LogEnds {
    fn of(topic: &TopicDescription) -> LogEnds {
        let retained = topic.logs.iter().filter(|log| log.first.seq <= log.last_seq);
        LogEnds(retained.map(|log| (log.partition, log.last_seq)).collect())
    }

    fn are_reached(&self) -> bool {
        self.0.is_empty()
    }

    fn is_past(&self, record: &Record<'_>) -> bool {
        self.0.get(&record.log.partition).is_none_or(|last| record.seq() > *last)
    }

    fn advance(&mut self, event: &Event<'_>) {
        let at = |log: &LogName, seq| (log.partition, seq);
        let (partition, seq) = match event {
            Event::Record(record) => at(record.log, record.seq()),
            Event::Notice(Notice::Gap(gap)) => at(&gap.log, gap.last),
            Event::Notice(Notice::Advance { log, through }) => at(log, through.seq),
            Event::Notice(Notice::Deleted { log, .. }) => at(log, u64::MAX),
            Event::Notice(_) => return,
        };
        if self.0.get(&partition).is_some_and(|last| *last <= seq) {
            self.0.remove(&partition);
        }
    }
}

fn write_line(
    record: &Record<'_>,
    interpreters: &Interpreters,
    console: &Console,
    out: &mut impl Write,
) -> Result<()> {
    let frame = &record.frame;
    let position = format!("{}/{}", record.log.partition, record.position);
    write!(
        out,
        "{position}  {}  {}",
        rfc3339(frame.append_time_ns()),
        console.paint.strong(&record.subject())
    )?;
    let times = [("event", frame.event_time_ns()), ("expires", frame.expires_ns())];
    for (name, time_ns) in times.into_iter().filter_map(|(name, time)| Some((name, time?))) {
        write!(out, "  {name}={}", rfc3339(time_ns))?;
    }
    if let Some(reply) = frame.reply() {
        write!(out, "  reply={}", text::escaped(reply.as_bytes()))?;
    }
    let key = frame.key().map(|key| ("key", key));
    for (name, value) in key.into_iter().chain(frame.headers()) {
        write!(out, "  {}=", text::escaped(name.as_bytes()))?;
        text::escape(value, out)?;
    }
    write!(out, "  {} ", console.paint.faint("|"))?;
    match interpreters.text(record) {
        Some(meaning) => out.write_all(meaning.as_bytes())?,
        None => text::escape(record.payload(), out)?,
    }
    Ok(writeln!(out)?)
}
