//! `feed record`: writes live state down as it comes, from the state of the first moment on.
//!
//! A reader that is lapped, or loses its place, is brought back by the state, which is written down like the first: nothing
//! is missing of the state, and how many records are missing is told at the end.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin::now_ns;
use dunlin_client::{Client, Subscriber};
use dunlin_feed::{By, Change, Replica, Report};
use dunlin_journal::{AppendError, Batch, Config, Journal, RealDisk};
use dunlin_topic::{Fold, OnGap, Start, SubscribeOptions};

use super::recording::{self, STATE, SUM};
use super::watch::instrument_is_there;
use crate::arguments::Global;
use crate::commands::parse;
use crate::connect::connect;
use crate::console::{Console, grouped, sized};
use crate::outage::Outage;
use crate::outcome::Refusal;
use crate::signals::Stop;
use crate::state::State;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin feed record --out rec/ 'md.>'
  dunlin feed record --out rec/ md.BTC-USD --time 10s

Ctrl-C ends the recording in good order. `dunlin feed verify --strict rec/` says whether it is whole, and
`dunlin feed replay rec/` publishes it again.")]
pub struct Arguments {
    /// Topics that keep a state, or patterns of them
    #[arg(required = true, value_name = "PATTERN")]
    patterns: Vec<String>,
    /// The folder to make
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
    /// End after this long
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    time: Option<Duration>,
}

/// How often what was written is brought to the disk.
const SYNC_EVERY: Duration = Duration::from_millis(200);
/// Bytes put together before they are written.
const BATCH_BYTES: usize = 1 << 20;
/// Changes taken in between two writes.
const TURN: usize = 4096;
const LOOK: Duration = Duration::from_millis(50);

pub fn run(arguments: &Arguments, global: &Global, console: &Console) -> Result<()> {
    let stop = Stop::on_signal()?;
    if recording::logs(&arguments.out).is_ok() {
        let out = arguments.out.display();
        return Err(Refusal(format!("{out} holds a recording already; it is not written over")).into());
    }
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot make {}", arguments.out.display()))?;
    let client = connect(global, "dunlin feed record")?;
    let mut recorder = Recorder { out: arguments.out.clone(), logs: HashMap::new() };
    let outcome = record(arguments, &client, &mut recorder, &stop, console);
    // What was written stays readable whatever ended it.
    let closed = recorder.close(console);
    outcome.and(closed)
}

fn record(
    arguments: &Arguments,
    client: &Client,
    recorder: &mut Recorder,
    stop: &Stop,
    console: &Console,
) -> Result<()> {
    let mut replicas = Vec::new();
    for pattern in &arguments.patterns {
        replicas.push(follow(client, pattern)?);
    }
    let (begun, mut synced) = (Instant::now(), Instant::now());
    let mut outage = Outage::default();
    while !stop.is_set() && arguments.time.is_none_or(|time| begun.elapsed() < time) {
        for (replica, checked) in &mut replicas {
            let taken = recorder.take_in(replica, checked)?;
            let came = taken.and_then(|taken| if taken > 0 { Ok(true) } else { replica.wait(Some(LOOK)) });
            match came {
                Ok(_) => outage.over(),
                Err(error) => outage.wait_out(error, console.errors)?,
            }
        }
        if synced.elapsed() >= SYNC_EVERY {
            synced = Instant::now();
            recorder.sync()?;
        }
    }
    Ok(())
}

/// What is read, and how often its owners' sums were compared.
type Following = (Replica<State, Subscriber>, u64);

fn follow(client: &Client, pattern: &str) -> Result<Following> {
    instrument_is_there(client, pattern)?;
    let options = SubscribeOptions {
        name: "dunlin feed record".to_owned(),
        start: Start::Snapshot,
        on_gap: OnGap::Snapshot,
        ..SubscribeOptions::default()
    };
    let subscriber =
        client.subscribe(pattern, options).with_context(|| format!("cannot subscribe to {pattern}"))?;
    let client = client.clone();
    Ok((Replica::new(subscriber, move |log| State::of_topic(&client, &log.topic)), 0))
}

struct Recorder {
    out: PathBuf,
    logs: HashMap<String, Log>,
}

struct Log {
    journal: Journal,
    next_seq: u64,
    last_time_ns: u64,
    first_time_ns: u64,
    count: u32,
    frames: Vec<u8>,
    /// Records of the topic that are in a state and not here by themselves.
    passed_over: u64,
}

impl Recorder {
    fn take_in(
        &mut self,
        replica: &mut Replica<State, Subscriber>,
        checked: &mut u64,
    ) -> Result<Result<usize, dunlin_topic::SubscribeError>> {
        let mut written = Ok(());
        let taken = replica.drain(now_ns(), TURN, |report| {
            if let (Report::Changed(change), Ok(())) = (&report, &written) {
                written = self.write(change);
            }
        });
        written?;
        // The owner has said what the states add up to, and they do.
        let now_checked = replica.counts().checked;
        if now_checked != *checked {
            *checked = now_checked;
            for (name, _, state) in replica.states() {
                if let Some(log) = self.logs.get_mut(&name.topic) {
                    log.sum(state.checksum())?;
                }
            }
        }
        Ok(taken)
    }

    fn write(&mut self, change: &Change<'_, State>) -> Result<()> {
        let topic = &change.log.topic;
        if !self.logs.contains_key(topic) {
            let log = Log::open(&self.out, topic)?;
            self.logs.insert(topic.clone(), log);
        }
        let Some(log) = self.logs.get_mut(topic) else { return Ok(()) };
        let passed = (change.to.seq - change.from.seq).saturating_sub(1);
        match change.by {
            By::Record(frame) | By::Merged(frame) if log.next_seq > 1 => {
                log.passed_over += passed;
                log.add(frame.append_time_ns(), |out| {
                    frame.append_to(out);
                    Ok(())
                })
            }
            // The first record of a recording is a whole state, and so is what brings a reader back.
            _ => {
                log.passed_over += if log.next_seq > 1 { passed } else { 0 };
                let fold = recording::text_of(&change.state.config());
                let (payload, at) = (recording::whole(change.state), log.last_time_ns);
                log.add(at, |out| recording::frame((STATE, &fold), at, &payload, out))
            }
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.logs.iter_mut().try_for_each(|(topic, log)| log.sync().map_err(|error| refused(topic, error)))
    }

    fn close(self, console: &Console) -> Result<()> {
        let (mut records, mut bytes, mut passed_over, topics) = (0, 0, 0, self.logs.len());
        for (topic, mut log) in self.logs {
            let flushed = log.flush();
            (records, bytes) = (records + log.next_seq - 1, bytes + log.journal.bytes());
            passed_over += log.passed_over;
            flushed.and_then(|()| log.journal.close()).map_err(|error| refused(&topic, error))?;
        }
        let mark = console.errors.good("recorded");
        let what = if topics == 1 { "topic" } else { "topics" };
        let mut text = format!("{mark} {} records of {topics} {what}, {}", grouped(records), sized(bytes));
        if passed_over > 0 {
            text += &format!("; {} updates are in the states only", grouped(passed_over));
        }
        Ok(writeln!(std::io::stderr(), "{text}")?)
    }
}

impl Log {
    fn open(out: &std::path::Path, topic: &str) -> Result<Log> {
        let dir = recording::folder(out, topic);
        let opened = Journal::open(Arc::new(RealDisk), &dir, topic, Config::default());
        let (journal, _) = opened.with_context(|| format!("cannot record to {}", dir.display()))?;
        let frames = Vec::new();
        Ok(Log { journal, next_seq: 1, last_time_ns: 0, first_time_ns: 0, count: 0, frames, passed_over: 0 })
    }

    fn sum(&mut self, checksum: u64) -> Result<()> {
        let at = self.last_time_ns;
        self.add(at, |out| recording::frame((SUM, &format!("{checksum:016x}")), at, b"", out))
    }

    fn add(&mut self, time_ns: u64, frame: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        frame(&mut self.frames)?;
        self.last_time_ns = self.last_time_ns.max(time_ns);
        if self.count == 0 {
            self.first_time_ns = self.last_time_ns;
        }
        self.count += 1;
        self.next_seq += 1;
        if self.frames.len() >= BATCH_BYTES {
            self.flush().map_err(|error| refused("", error))
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), AppendError> {
        if self.count == 0 {
            return Ok(());
        }
        let batch = Batch {
            epoch: 1,
            first_seq: self.next_seq - u64::from(self.count),
            count: self.count,
            first_time_ns: self.first_time_ns,
            last_time_ns: self.last_time_ns,
            frames: &[&self.frames],
        };
        self.journal.append(&batch)?;
        self.count = 0;
        self.frames.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), AppendError> {
        self.flush()?;
        self.journal.sync().map(drop)
    }
}

fn refused(topic: &str, error: AppendError) -> anyhow::Error {
    let full = matches!(error, AppendError::Full { .. });
    let error = anyhow::Error::from(error).context(format!("recording {topic}"));
    if full { error.context("the disk is full; what was recorded before stays readable") } else { error }
}
