//! The command `dunlin feed verify`, which checks that a recording is complete and its states are correct.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use dunlin_journal::{Position, Reader, RealDisk, ScanItem};
use dunlin_topic::{Frame, Pattern, Reducer, ReducerConfig};
use serde_json::json;

use super::recording::list::{self, RecordedTopic, RecordedTopics};
use super::recording::{self, FrameKind, RecordCounts, RecordedConfig};
use crate::console::{Console, grouped};
use crate::progress::{TransferProgress, bytes_in};
use crate::state::State;

/// Arguments of `dunlin feed verify`, which checks a recording.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin feed verify rec/
  dunlin feed verify --strict rec/

The command compares every block with its checksum, and every state with the checksums that the topic's owner sent. With
--strict, it also fails if the recording was not closed, because its last records may be missing. Exit code 2 means that
something is wrong.")]
pub struct Arguments {
    /// Directory of the recording
    directory: PathBuf,
    /// Fail also if the recording was not closed: its last records may be missing
    #[arg(long)]
    strict: bool,
}

/// The result of checking one log, or the sum of these results over all logs.
#[derive(Debug, Default)]
struct VerifyReport {
    topic: String,
    /// The pattern of the topic's subjects, as the recording states it.
    pattern: Option<Pattern>,
    /// The reducer of the topic, as the recording states it; `None` before the first state.
    reducer: Option<ReducerConfig>,
    /// The number of records in the log, including those that the recorder added.
    record_count: u64,
    counts: RecordCounts,
    /// The number of gaps in the log.
    holes: u64,
    /// The number of recorded checksums that were compared with a state.
    points: u64,
    /// The number of recorded checksums that were equal to the checksum of the state.
    points_equal: u64,
    /// The problems that were found, one text for each.
    problems: Vec<String>,
    /// The number of `problems` that say only that the recording was not closed.
    end_problems: usize,
    /// Number of logs that were not closed. Records may be missing from them.
    unclosed: usize,
    /// The number that identifies the log's first file.
    identity: Option<u64>,
    /// Whether the log belongs to a recording, and therefore begins with a complete state. A node's own log does not
    /// begin with a state.
    is_recorded: bool,
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let Arguments { directory, strict } = arguments;
    let logs = recording::log_dirs(directory)?;
    let is_one_log = logs == [directory.clone()];
    let is_closed = is_one_log || list::exists(directory);
    let progress = TransferProgress::of_bytes("verifying", Some(logs.iter().map(|dir| bytes_in(dir)).sum()));
    let (mut all, mut topics, mut bytes_done) = (VerifyReport::default(), RecordedTopics::new(), 0);
    let mut out = console.out();
    for dir in &logs {
        let mut found = verify(dir, *strict, &progress);
        bytes_done += bytes_in(dir);
        progress.set_bytes(bytes_done);
        if found.is_recorded && !is_one_log && *dir != recording::topic_dir(directory, &found.topic) {
            let shown = dir.display();
            found.problems.push(format!(
                "the directory {shown} does not have the name of its topic: it was copied or renamed"
            ));
        }
        if found.is_recorded && !is_closed {
            // A recorder that fails, for example on a full disk, closes each log, but does not write the list of
            // topics.
            found.unclosed = 1;
        }
        if console.json {
            writeln!(out, "{}", report_object(&found))?;
        } else if let Some(pattern) = &found.pattern {
            writeln!(out, "{} has the pattern {}", found.topic, pattern.as_str())?;
        }
        print_problems(&found.topic, &found.problems, &progress, console)?;
        if found.is_recorded {
            let entry = RecordedTopic { records: found.record_count, identity: found.identity };
            topics.insert(found.topic.clone(), entry);
        }
        all.add(found);
    }
    if *strict && !is_one_log && !topics.is_empty() {
        let problems = list::find_problems(directory, &topics);
        print_problems(&directory.display().to_string(), &problems, &progress, console)?;
        if !is_closed {
            all.end_problems += problems.len();
        }
        all.problems.extend(problems);
    }
    drop(progress);
    if !console.json {
        writeln!(out, "{}", summary_line(&all, logs.len(), console))?;
    }
    out.flush()?;
    let shown = directory.display();
    match all.problems.len() {
        0 => Ok(()),
        count if count == all.end_problems => bail!(
            "{shown} was not closed, is still being written, or was cut short: its last records may be missing"
        ),
        1 => bail!("{shown} is damaged: 1 problem"),
        count => bail!("{shown} is damaged: {count} problems"),
    }
}

fn print_problems(
    name: &str,
    problems: &[String],
    progress: &TransferProgress,
    console: &Console,
) -> Result<()> {
    for problem in problems {
        let line = format!("{} {name}: {problem}", console.errors.bad("wrong:"));
        progress.suspend(|| writeln!(std::io::stderr(), "{line}"))?;
    }
    Ok(())
}

impl VerifyReport {
    fn add(&mut self, other: VerifyReport) {
        self.record_count += other.record_count;
        self.counts += other.counts;
        self.holes += other.holes;
        self.points += other.points;
        self.points_equal += other.points_equal;
        self.problems.extend(other.problems);
        self.end_problems += other.end_problems;
        self.unclosed += other.unclosed;
    }
}

fn summary_line(all: &VerifyReport, topics: usize, console: &Console) -> String {
    let mark = match (all.problems.len(), all.unclosed) {
        (0, 0) => console.paint.good("ok:"),
        (0, _) => console.paint.warning("ok, but not closed:"),
        _ => console.paint.bad("not ok:"),
    };
    let unclosed = match all.unclosed {
        0 => String::new(),
        logs => format!("; logs not closed: {logs} (an error with --strict)"),
    };
    format!(
        "{mark} {}, {} gaps, book checksum equal at {} of {} points{unclosed}",
        all.counts.describe(topics),
        grouped(all.holes),
        grouped(all.points_equal),
        grouped(all.points)
    )
}

fn report_object(found: &VerifyReport) -> serde_json::Value {
    json!({
        "topic": found.topic, "pattern": found.pattern.as_ref().map(Pattern::as_str),
        "records": found.counts.records, "states": found.counts.states, "gaps": found.holes, "points": found.points,
        "points_equal": found.points_equal, "ok": found.problems.is_empty(), "ended": found.unclosed == 0, "problems": found.problems,
    })
}

/// Checks one log. If the log cannot be read, the report names this problem.
fn verify(dir: &Path, strict: bool, progress: &TransferProgress) -> VerifyReport {
    let name = dir.file_name().map_or_else(Default::default, |name| name.to_string_lossy().into_owned());
    let mut found = VerifyReport { topic: name, ..VerifyReport::default() };
    if let Err(error) = check_log(dir, strict, progress, &mut found) {
        found.problems.push(format!("{error:#}"));
    }
    found
}

fn check_log(dir: &Path, strict: bool, progress: &TransferProgress, found: &mut VerifyReport) -> Result<()> {
    let report = dunlin_journal::verify(&RealDisk, dir).context("cannot check the log's files")?;
    if !report.name.is_empty() {
        found.topic.clone_from(&report.name);
    }
    progress.set_message(&found.topic);
    found.problems.extend(report.wrong.iter().map(ToString::to_string));
    found.problems.extend(report.holes.iter().map(ToString::to_string));
    found.unclosed = usize::from(!report.unended.is_empty());
    if strict {
        found.problems.extend(report.unended.iter().map(|problem| format!("not closed: {problem}")));
        found.end_problems = report.unended.len();
        if report.records == 0 {
            found.problems.push("it has no record".to_owned());
            // Nothing was written yet.
            found.end_problems += found.unclosed;
        }
    }
    let reader = Reader::open(Arc::new(RealDisk), dir).context("cannot read the log")?;
    found.identity = reader.identity();
    apply(&reader, found, progress)
}

/// Applies each record of the log to the topic's state, and adds the results to `found`.
fn apply(reader: &Reader, found: &mut VerifyReport, progress: &TransferProgress) -> Result<()> {
    let mut scan = reader.scan(Position::default());
    let mut state: Option<State> = None;
    loop {
        match scan.next().context("cannot read the recording")? {
            None => return Ok(()),
            Some(ScanItem::Hole(_)) => {
                found.holes += 1;
                state = None;
            }
            Some(ScanItem::Records(records)) => {
                progress.add(records.frames.len() as u64);
                let (mut rest, mut seq) = (records.frames, records.first_seq);
                while let Some((frame, taken)) = Frame::split(rest) {
                    found.record_count += 1;
                    if let Err(problem) = apply_frame(&mut state, seq, &frame, found) {
                        found.problems.push(format!("record {seq}: {problem:#}"));
                        return Ok(());
                    }
                    (rest, seq) = (&rest[taken..], seq + 1);
                }
            }
        }
    }
}

fn apply_frame(
    state: &mut Option<State>,
    seq: u64,
    frame: &Frame<'_>,
    found: &mut VerifyReport,
) -> Result<()> {
    match recording::frame_kind(frame)? {
        FrameKind::State(RecordedConfig { reducer, pattern }) => {
            found.is_recorded |= seq == 1;
            if found.counts.states > 0 && found.pattern != pattern {
                bail!("the pattern of the topic's subjects differs from that of the first state");
            }
            found.pattern = pattern;
            if found.reducer.as_ref().is_some_and(|first| *first != reducer) {
                bail!("the topic's reducer differs from that of the first state");
            }
            // The new state replaces the current one, so it is checked with an empty state.
            let mut fresh = State::of(&reducer)?;
            fresh.check(&mut std::iter::once(*frame))?;
            fresh.apply(seq, frame)?;
            *state = Some(fresh);
            found.reducer = Some(reducer);
            found.counts.states += 1;
        }
        FrameKind::Sum(sum) => {
            let Some(state) = state else { return Ok(()) };
            found.points += 1;
            let checksum = state.checksum();
            if checksum != sum {
                bail!("the state's checksum is {checksum:016x}, but the topic's owner sent {sum:016x}");
            }
            found.points_equal += 1;
        }
        // After a record that marks the end of the topic, the next record must be a state.
        FrameKind::End => *state = None,
        FrameKind::Record => {
            found.counts.records += 1;
            if let Some(pattern) = &found.pattern {
                recording::check_subject(pattern, frame)?;
            }
            // A node's own log does not name a reducer, so its records cannot be applied to a state.
            let Some(state) = state else { return Ok(()) };
            state.check(&mut std::iter::once(*frame))?;
            state.apply(seq, frame)?;
        }
    }
    Ok(())
}
