//! `feed verify`: whether a recording is whole, and its states add up to what their owners said.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use dunlin_journal::{Item, Position, Reader, RealDisk};
use dunlin_topic::{Fold, Frame};
use serde_json::json;

use super::recording::{self, Recorded};
use crate::console::{Console, grouped};
use crate::state::State;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin feed verify rec/
  dunlin feed verify --strict rec/

Every block is read and compared with its checksum, every record is applied to its state, and the state is compared with
what the topic's owner said it adds up to. --strict also refuses a recording that was not ended in good order: its
last records might be missing without a trace. Exit code 2 when something is wrong.")]
pub struct Arguments {
    /// The recording
    directory: PathBuf,
    /// Also refuse a recording that did not end in good order
    #[arg(long)]
    strict: bool,
}

/// What was found in one log.
#[derive(Debug, Default)]
struct Found {
    topic: String,
    records: u64,
    holes: u64,
    points: u64,
    points_equal: u64,
    problems: Vec<String>,
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let logs = recording::logs(&arguments.directory)?;
    let mut out = console.out();
    let (mut all, mut topics) = (Found::default(), 0);
    for dir in logs {
        let found = verify(&dir, arguments.strict)?;
        if console.json {
            writeln!(out, "{}", object(&found))?;
        }
        for problem in &found.problems {
            writeln!(std::io::stderr(), "{} {}: {problem}", console.errors.bad("wrong:"), found.topic)?;
        }
        topics += 1;
        all.records += found.records;
        all.holes += found.holes;
        all.points += found.points;
        all.points_equal += found.points_equal;
        all.problems.extend(found.problems);
    }
    if !console.json {
        writeln!(out, "{}", sentence(&all, topics, console))?;
    }
    out.flush()?;
    match all.problems.len() {
        0 => Ok(()),
        wrong => bail!("{} is not whole: {wrong} things are wrong", arguments.directory.display()),
    }
}

fn sentence(all: &Found, topics: usize, console: &Console) -> String {
    let mark = if all.problems.is_empty() { console.paint.good("ok:") } else { console.paint.bad("not ok:") };
    let what = if topics == 1 { "topic" } else { "topics" };
    format!(
        "{mark} {} records of {topics} {what}, {} gaps, book checksum equal at {} of {} points",
        grouped(all.records),
        grouped(all.holes),
        grouped(all.points_equal),
        grouped(all.points)
    )
}

fn object(found: &Found) -> serde_json::Value {
    json!({
        "topic": found.topic, "records": found.records, "gaps": found.holes, "points": found.points,
        "points_equal": found.points_equal, "ok": found.problems.is_empty(), "problems": found.problems,
    })
}

fn verify(dir: &Path, strict: bool) -> Result<Found> {
    let report =
        dunlin_journal::verify(&RealDisk, dir).with_context(|| format!("cannot verify {}", dir.display()))?;
    let mut found = Found { topic: report.name.clone(), ..Found::default() };
    found.problems.extend(report.wrong.iter().map(ToString::to_string));
    found.problems.extend(report.holes.iter().map(|hole| format!("records are missing: {hole:?}")));
    if strict {
        found
            .problems
            .extend(report.unended.iter().map(|problem| format!("not ended in good order: {problem}")));
        if report.records == 0 {
            found.problems.push("it holds no record".to_owned());
        }
    }
    let reader =
        Reader::open(Arc::new(RealDisk), dir).with_context(|| format!("cannot read {}", dir.display()))?;
    apply(&reader, &mut found)?;
    Ok(found)
}

/// Applies every record to its state.
fn apply(reader: &Reader, found: &mut Found) -> Result<()> {
    let mut scan = reader.scan(Position::default());
    let mut state: Option<State> = None;
    loop {
        match scan.next().context("reading the recording")? {
            None => return Ok(()),
            Some(Item::Hole(_)) => {
                found.holes += 1;
                state = None;
            }
            Some(Item::Records(records)) => {
                let (mut rest, mut seq) = (records.frames, records.first_seq);
                while let Some((frame, taken)) = Frame::split(rest) {
                    found.records += 1;
                    if let Err(problem) = take(&mut state, seq, &frame, found) {
                        found.problems.push(format!("record {seq}: {problem:#}"));
                        return Ok(());
                    }
                    (rest, seq) = (&rest[taken..], seq + 1);
                }
            }
        }
    }
}

fn take(state: &mut Option<State>, seq: u64, frame: &Frame<'_>, found: &mut Found) -> Result<()> {
    match recording::recorded(frame)? {
        Recorded::State(fold) => {
            // Of one kind with the state before it, it must be taken in by that one; so it is by readers.
            let mut fresh = State::of(&fold)?;
            fresh.check(&mut std::iter::once(*frame))?;
            fresh.apply(seq, frame)?;
            *state = Some(fresh);
        }
        Recorded::Sum(sum) => {
            let Some(state) = state else { return Ok(()) };
            found.points += 1;
            let own = state.checksum();
            if own != sum {
                bail!("the state adds up to {own:016x}, and its owner said {sum:016x}");
            }
            found.points_equal += 1;
        }
        Recorded::Record => {
            // A log that a node has written begins with its first record, of a kind that is not told in it.
            let Some(state) = state else { return Ok(()) };
            state.check(&mut std::iter::once(*frame))?;
            state.apply(seq, frame)?;
        }
    }
    Ok(())
}
