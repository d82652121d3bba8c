//! Prints the records in files of durable topics, for the command `dunlin log dump DIR`. No node needs to run.
//!
//! The files are not changed, repaired or locked. If a node is writing to a log, the command prints the records that
//! exist when it reads the file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use dunlin::journal::{self, RealDisk, Records, ScanItem};
use dunlin_topic::{Frame, LogName, Pattern, Position, Record, Start};

use super::{Dump, write_line};
use crate::commands::feed::recording::{self, FrameKind, RecordedConfig};
use crate::console::Console;
use crate::format::EventPrinter;
use crate::signals::StopFlag;

/// Whether `topic` is a path of files and not the name of a topic.
pub fn is_path(topic: &str) -> bool {
    topic.contains('/') || Path::new(topic).is_dir()
}

pub fn dump(dump: &Dump, writer: &EventPrinter, console: &Console, stop: &StopFlag) -> Result<()> {
    let mut out = console.out();
    let mut remaining = dump.count.unwrap_or(u64::MAX);
    for dir in log_dirs(Path::new(&dump.topic))? {
        let reader = journal::Reader::open(Arc::new(RealDisk), &dir)
            .with_context(|| format!("cannot read {}", dir.display()))?;
        let name = Arc::new(log_name(reader.name(), &dir));
        let recorded_name = recorded_name(&reader, &name)?;
        let from = match dump.from {
            Start::After(position) => journal::Position::new(position.epoch, position.seq.saturating_add(1)),
            Start::Time(ns) => match reader.position_at(ns)? {
                Some(position) => position,
                // The log has no records at or after the start time.
                None => continue,
            },
            _ => journal::Position::default(),
        };
        let mut scan = reader.scan(from);
        while let Some(item) = scan.next()? {
            match item {
                ScanItem::Hole(hole) => writeln!(std::io::stderr(), "{}: {hole}", reader.name())?,
                ScanItem::Records(records) => {
                    print(&records, [&name, &recorded_name], &mut remaining, writer, console, &mut out)?;
                }
            }
            if remaining == 0 || stop.is_set() {
                return Ok(out.flush()?);
            }
        }
    }
    Ok(out.flush()?)
}

/// Prints at most `remaining` of the records, and reduces `remaining` by the number of printed records. A record with a
/// subject tail is printed with the log name `recorded_name`, any other record with `name`.
fn print(
    records: &Records<'_>,
    [name, recorded_name]: [&Arc<LogName>; 2],
    remaining: &mut u64,
    writer: &EventPrinter,
    console: &Console,
    out: &mut impl Write,
) -> Result<()> {
    let mut rest = records.frames;
    let mut seq = records.first_seq;
    while let Some((frame, taken)) = Frame::split(rest).filter(|_| *remaining > 0) {
        let position = Position { epoch: records.epoch, seq };
        // In a recording, a complete state names the reducer of the topic.
        if let Ok(FrameKind::State(config)) = recording::frame_kind(&frame) {
            writer.interpreters.set_reducer(&name.topic, config.reducer);
        }
        // States and merged records of a recording have no subject tail.
        let log = if frame.subject_tail().is_empty() { name } else { recorded_name };
        let record = Record { position, prev_seq: seq.saturating_sub(1), frame, log };
        if console.json {
            writer.record(&record, None, out)?;
        } else {
            write_line(&record, &writer.interpreters, console, out)?;
        }
        rest = &rest[taken..];
        seq += 1;
        *remaining -= 1;
    }
    Ok(())
}

/// Returns the directories of all logs in the data directory `dir`. If `dir` is itself the directory of a log, returns
/// only `dir`.
fn log_dirs(dir: &Path) -> Result<Vec<PathBuf>> {
    let logs = dir.join("logs");
    if !logs.is_dir() {
        return Ok(vec![dir.to_owned()]);
    }
    let entries = std::fs::read_dir(&logs).with_context(|| format!("cannot list {}", logs.display()))?;
    let mut dirs = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    dirs.sort();
    if dirs.is_empty() {
        bail!("{} has no durable topics", dir.display());
    }
    Ok(dirs)
}

/// Parses a log's name `TOPIC/PARTITION`. If `dir` is in a node's data directory, the file that describes the topic
/// states the prefix of the topic's subjects; otherwise, the prefix is the topic's name.
fn log_name(name: &str, dir: &Path) -> LogName {
    let (topic, partition) = name.rsplit_once('/').unwrap_or((name, "0"));
    let pattern = read_pattern(dir).unwrap_or_else(|| topic.to_owned());
    let prefix =
        Pattern::parse(&pattern).map_or(String::new(), |pattern| pattern.literal_prefix().to_owned());
    LogName {
        topic: topic.to_owned(),
        subject_prefix: prefix,
        partition: partition.parse().unwrap_or_default(),
    }
}

/// Returns the log name with which to print the records' subjects. A record stores only its subject's tail, which is
/// the part after the topic's prefix. If the log is part of a recording that states the topic's pattern, the returned
/// name contains this prefix. Otherwise, returns `name`.
fn recorded_name(reader: &journal::Reader, name: &Arc<LogName>) -> Result<Arc<LogName>> {
    let mut scan = reader.scan(journal::Position::default());
    if let Some(ScanItem::Records(records)) = scan.next()?
        && let Some((frame, _)) = Frame::split(records.frames)
        && let Ok(FrameKind::State(RecordedConfig { pattern: Some(pattern), .. })) =
            recording::frame_kind(&frame)
    {
        let (topic, partition) = (name.topic.clone(), name.partition);
        let subject_prefix = pattern.literal_prefix().to_owned();
        return Ok(Arc::new(LogName { topic, subject_prefix, partition }));
    }
    Ok(Arc::clone(name))
}

fn read_pattern(dir: &Path) -> Option<String> {
    let id = dir.file_name()?.to_str()?.split('-').next()?;
    let catalogue = dir.parent()?.parent()?.join("topics").join(format!("{id}.topic"));
    let text = std::fs::read_to_string(catalogue).ok()?;
    text.lines().find_map(|line| line.strip_prefix("pattern ")).map(str::to_owned)
}
