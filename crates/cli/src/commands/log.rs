//! The command `dunlin log dump`, which prints the retained records of a topic, or the records in files of durable
//! topics.

mod files;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use dunlin_client::{Client, LogDescription, TopicDescription};
use dunlin_topic::{
    Event, LogName, Notice, Position, Record, Start, Subscribe, SubscribeOptions, format_duration,
};
use dunlin_wire::ErrorCode;

use crate::arguments::GlobalOptions;
use crate::commands::parse;
use crate::connect::connect;
use crate::console::Console;
use crate::format::{EventPrinter, Format, Interpreters, rfc3339, text};
use crate::outcome::ErrorWithAdvice;
use crate::signals::StopFlag;

/// If no event arrives for this time, the command checks up to which position the client has received each log.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// If for this time no event arrives and no position increases, the command fails. This time is several heartbeat
/// intervals of a node, because a heartbeat carries the position after records that have expired.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Arguments of `dunlin log`, which prints the records of a topic's log.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
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

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let Subcommand::Dump(dump) = &arguments.subcommand;
    let stop = StopFlag::on_signal()?;
    if files::is_path(&dump.topic) {
        return files::dump(dump, &writer(console, None), console, &stop);
    }
    let topic = &dump.topic;
    let topic_hint = || {
        format!("{topic} is not a directory on this machine, so the command looked for a topic of this name")
    };
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
    let mut ends = LogEnds::of(topic)?;
    let pattern = topic.config.pattern.as_deref().unwrap_or(&topic.name);
    let options =
        SubscribeOptions { name: "dunlin log dump".to_owned(), start: dump.from, ..Default::default() };
    let mut subscriber = client.subscribe(pattern, options)?;
    let writer = writer(console, Some(client));
    let mut out = console.out();
    let mut written = 0;
    // The positions up to which the client had received the logs before the current wait. If the wait ends without an
    // event, the command has processed everything up to these positions.
    let mut received = Vec::new();
    let mut last_progress = Instant::now();
    while !ends.are_reached() && dump.count.is_none_or(|count| written < count) && !stop.is_set() {
        let Some(event) = subscriber.next_timeout(CHECK_INTERVAL)? else {
            // Records that have expired or left the log cause no event, but the positions in `received` include them.
            if ends.advance_to(&received) {
                last_progress = Instant::now();
            }
            if !ends.are_reached() && last_progress.elapsed() > SILENCE_MAX {
                out.flush()?;
                return Err(ends.silence_error(&topic.name));
            }
            received = subscriber.received_positions();
            continue;
        };
        written += u64::from(matches!(&event, Event::Record(record) if !ends.is_past(record)));
        match &event {
            Event::Record(record) if ends.is_past(record) => {}
            Event::Record(record) if console.json => writer.record(record, None, &mut out)?,
            Event::Record(record) => write_line(record, &writer.interpreters, console, &mut out)?,
            Event::Notice(notice) => writer.notice(notice, &mut out, &mut std::io::stderr())?,
        }
        if let Event::Notice(Notice::Deleted { log, .. }) = &event
            && ends.contains(log.partition)
        {
            out.flush()?;
            bail!("topic `{}` was deleted before all its records were read", topic.name);
        }
        ends.advance(&event);
        // Writing to a slow reader may have taken long, so the time without an event begins only now.
        last_progress = Instant::now();
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

/// The logs that the command has not yet read to their ends, by partition. A log ends with the last record that existed
/// when the command started. Later records are not printed.
struct LogEnds(BTreeMap<u16, LogEnd>);

struct LogEnd {
    /// The position of the last record that the log contained when the command started.
    last: Position,
    /// The position up to which the log has been read; `None` before the first event.
    read_through: Option<Position>,
}

impl LogEnds {
    fn of(topic: &TopicDescription) -> Result<LogEnds> {
        if topic.logs.is_empty() {
            let message = format!("the node that owns topic `{}` does not respond", topic.name);
            let advice =
                format!("Try again later. `dunlin topics describe {}` shows the topic's owner.", topic.name);
            return Err(ErrorWithAdvice { code: ErrorCode::OwnerAway, message, advice }.into());
        }
        let retained = topic.logs.iter().filter(|log| log.first.seq <= log.last_seq);
        let end = |log: &LogDescription| {
            let last = Position { epoch: log.first.epoch, seq: log.last_seq };
            (log.partition, LogEnd { last, read_through: None })
        };
        Ok(LogEnds(retained.map(end).collect()))
    }

    fn are_reached(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, partition: u16) -> bool {
        self.0.contains_key(&partition)
    }

    fn is_past(&self, record: &Record<'_>) -> bool {
        self.0
            .get(&record.log.partition)
            .is_none_or(|end| record.position.epoch > end.last.epoch || record.position.seq > end.last.seq)
    }

    fn advance(&mut self, event: &Event<'_>) {
        let (log, position) = match event {
            Event::Record(record) => (record.log, record.position),
            Event::Notice(Notice::Gap(gap)) => (&gap.log, Position { epoch: gap.epoch, seq: gap.last }),
            Event::Notice(Notice::EpochChanged(changed)) => {
                let Position { epoch, seq } = changed.new_first;
                (&changed.log, Position { epoch, seq: seq.saturating_sub(1) })
            }
            Event::Notice(Notice::Advance { log, through }) => (log, *through),
            Event::Notice(_) => return,
        };
        self.advance_log(log.partition, position);
    }

    /// Advances each log to its position in `positions`. Returns whether the position of any log has increased.
    fn advance_to(&mut self, positions: &[(Arc<LogName>, Position)]) -> bool {
        let mut has_advanced = false;
        for (log, position) in positions {
            has_advanced |= self.advance_log(log.partition, *position);
        }
        has_advanced
    }

    /// Advances a log to `position`, and removes the log if it has been read to its end. Returns whether the log's
    /// position has increased.
    fn advance_log(&mut self, partition: u16, position: Position) -> bool {
        let Some(end) = self.0.get_mut(&partition) else { return false };
        let has_advanced = end.read_through.is_none_or(|read_through| read_through < position);
        end.read_through = end.read_through.max(Some(position));
        // A position in a later epoch than that of `end.last` is after the log's end. Otherwise, only the sequence
        // numbers are compared. The reason: if the log's newest epoch has no records, the log ends in the previous
        // epoch, and `end.last` consists of the newest epoch and the previous epoch's last sequence number.
        if position.epoch > end.last.epoch || position.seq >= end.last.seq {
            self.0.remove(&partition);
        }
        has_advanced
    }

    fn silence_error(&self, topic: &str) -> anyhow::Error {
        let logs = self.0.iter().map(|(partition, LogEnd { last, read_through })| match read_through {
            Some(read_through) => {
                format!("log {partition}: read up to {read_through}, but it ends at {last}")
            }
            None => format!("nothing was read from log {partition}, which ends at {last}"),
        });
        anyhow!(
            "topic `{topic}`: no record arrived for {}: {}; see `dunlin topics describe {topic}`, and try again",
            format_duration(SILENCE_MAX),
            logs.collect::<Vec<_>>().join(", ")
        )
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

#[cfg(test)]
mod tests {
    use dunlin_topic::Gap;

    use super::*;

    fn log(partition: u16) -> Arc<LogName> {
        Arc::new(LogName { topic: "orders".to_owned(), subject_prefix: "orders".to_owned(), partition })
    }

    fn ends<const LOGS: usize>(last: [(u32, u64); LOGS]) -> LogEnds {
        let end = |(epoch, seq)| LogEnd { last: Position { epoch, seq }, read_through: None };
        LogEnds((0..).zip(last.into_iter().map(end)).collect())
    }

    #[test]
    fn log_dump_ends_at_the_last_record_of_each_log() {
        let mut ends = ends([(2, 9), (2, 5)]);
        let gap = Gap { log: log(0), epoch: 2, first: 4, last: 9 };
        ends.advance(&Event::Notice(Notice::Gap(gap)));
        assert!(!ends.contains(0) && ends.contains(1));
        let at = |epoch, seq| [(log(1), Position { epoch, seq })];
        assert!(ends.advance_to(&at(2, 4)));
        assert!(!ends.advance_to(&at(2, 4)), "the same position is no progress");
        let error = ends.silence_error("orders").to_string();
        assert!(error.contains("log 1: read up to 2-4, but it ends at 2-5;"), "{error}");
        assert!(ends.advance_to(&at(2, 5)) && ends.are_reached());
    }

    #[test]
    fn log_dump_ends_even_if_its_end_position_is_never_reached() {
        // The present epoch 2 has no records yet, so the log ends with record 5 of epoch 1, and its end is 2-5.
        let mut without_records = ends([(2, 5)]);
        assert!(without_records.advance_to(&[(log(0), Position { epoch: 1, seq: 5 })]));
        assert!(without_records.are_reached());
        // The later epoch 3 numbers its records from 1 again, so position 2-5 is never reached.
        let mut replaced = ends([(2, 5)]);
        assert!(replaced.advance_to(&[(log(0), Position { epoch: 3, seq: 0 })]) && replaced.are_reached());
    }
}
