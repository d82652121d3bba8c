//! The command `dunlin feed replay`, which publishes a recording again, to a running node.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dunlin::space::REGION;
use dunlin_client::{CallError, Client, Publisher};
use dunlin_journal::{Position, Reader, RealDisk, ScanItem};
use dunlin_topic::frame::RecordMeta;
use dunlin_topic::{Draft, Frame, Pattern, Payload, Publish, ReducerConfig, TopicConfig};
use dunlin_wire::ErrorCode;

use super::recording::list::{self, RecordedTopic, RecordedTopics};
use super::recording::{self, FrameKind, RecordCounts, RecordedConfig};
use crate::arguments::GlobalOptions;
use crate::connect::connect;
use crate::console::Console;
use crate::outcome::CommandRefusal;
use crate::progress::{TransferProgress, bytes_in};
use crate::signals::{GRACE, StopFlag};

/// Arguments of `dunlin feed replay`, which publishes the records of recordings again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin feed replay rec/                       at the recorded speed
  dunlin feed replay rec/ --speed max --url dunlin://127.0.0.1:4220
  dunlin feed replay rec1/ rec2/                recordings of two nodes together, such as the regions of a world

The command creates each topic with its recorded state kind and pattern, and publishes each record to its own subject,
in order. The records of several topics keep their order in time.

The command refuses a recording with a gap; `dunlin feed verify` shows where the gap is. It warns if the last records of
a recording may be missing, because the recorder did not close it or a file was cut short. It also refuses a topic that
has another publisher, unless --force is given.")]
pub struct Arguments {
    /// Directory of a recording; several are replayed together, by the times of their records
    #[arg(required = true, value_name = "DIRECTORY")]
    directories: Vec<PathBuf>,
    /// Speed of the replay: a factor such as 1x (as recorded) or 10x, or max (without pauses)
    #[arg(long, value_name = "FACTOR", default_value = "1x", value_parser = speed)]
    speed: Speed,
    /// Publish even to topics that have another publisher; their states then mix the records of both publishers
    #[arg(long)]
    force: bool,
}

/// The factor by which the replay is faster than the recording; `None` for a replay without pauses.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Speed(Option<f64>);

fn speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed(None));
    }
    let factor = text.strip_suffix('x').and_then(|text| text.parse().ok());
    let factor = factor.filter(|factor: &f64| factor.is_finite() && *factor >= 1e-3);
    factor
        .map(|factor| Speed(Some(factor)))
        .ok_or_else(|| "expected a speed like 1x or 10x, or max".to_owned())
}

/// A number of bytes that is used as two limits for a region's topic: its retention, and the size of its largest
/// record.
const REGION_BYTES: u32 = 64 << 20;
/// The longest sleep while a record is not yet due. The command checks between two sleeps whether it has to end.
const SLEEP_MAX: Duration = Duration::from_millis(50);

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    let client = connect(global, "dunlin feed replay")?;
    let (mut tracks, mut bytes) = (Vec::new(), 0);
    let mut dirs = Vec::new();
    for directory in &arguments.directories {
        dirs.extend(recording::log_dirs(directory)?.into_iter().map(|dir| (directory, dir)));
    }
    // Check all topics before publishing to any topic.
    for (_, dir) in dirs.iter().filter(|_| !arguments.force) {
        check_no_other_publisher(&client, dir, console)?;
    }
    for (directory, dir) in dirs {
        tracks.extend(Track::open(&client, directory, &dir)?);
        bytes += bytes_in(&dir);
    }
    let start = Instant::now();
    let progress = TransferProgress::of_bytes("replaying", Some(bytes));
    let played = stop.run_interruptible_after(GRACE, || {
        play(&client, &mut tracks, arguments.speed, start, &stop, &progress)
    });
    drop(progress);
    let published = played?.context("interrupted before the node acknowledged all records")?;
    if !stop.is_set() {
        warn_of_missing_ends(&arguments.directories, &tracks, console)?;
    }
    let mark = console.errors.good("published");
    let seconds = start.elapsed().as_secs_f64();
    Ok(writeln!(std::io::stderr(), "{mark} {} in {seconds:.1} s", published.describe(tracks.len()))?)
}

/// Fails if a topic has another publisher, whose records would mix with the recording's.
fn check_no_other_publisher(client: &Client, dir: &Path, console: &Console) -> Result<()> {
    let reader =
        Reader::open(Arc::new(RealDisk), dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let topic = reader.name();
    let described = match client.describe_topic(topic) {
        Err(CallError::Refused(refused)) if refused.code == ErrorCode::NoTopic => return Ok(()),
        described => described.with_context(|| format!("cannot describe topic {topic}"))?,
    };
    let Some(publishers) = described.publishers else {
        let message = format!(
            "a node of the cluster does not respond, so it is unknown whether {topic} has another publisher: try again later, \
             replay into another node (--url), or use --force"
        );
        return Err(CommandRefusal(message).into());
    };
    if publishers > 0 {
        let message = format!(
            "topic {topic} has another publisher, whose records would mix with the recording's: end that publisher, replay into another node (--url), or use --force"
        );
        return Err(CommandRefusal(message).into());
    }
    if described.logs.iter().any(|log| log.last_seq > 0) {
        let mark = console.errors.warning("warning:");
        writeln!(
            std::io::stderr(),
            "{mark} {topic} already has records: the recording's state replaces the topic's state"
        )?;
    }
    Ok(())
}

/// Warns of each recording whose last records may be missing.
fn warn_of_missing_ends(directories: &[PathBuf], tracks: &[Track], console: &Console) -> Result<()> {
    for directory in directories {
        let found = tracks.iter().filter(|track| track.recording == *directory);
        let entry = |track: &Track| RecordedTopic { records: track.records_read, identity: track.identity };
        let found: RecordedTopics = found.map(|track| (track.topic.clone(), entry(track))).collect();
        let problems: Vec<String> = if recording::log_dirs(directory)? == [directory.clone()] {
            // The list of topics is in the directory of the whole recording, not of a single log. So for a single log,
            // only the end mark can be checked.
            let track = tracks.iter().find(|track| track.recording == *directory);
            let has_end = track.is_some_and(|track| track.reader.has_end_mark());
            if has_end { Vec::new() } else { vec!["not closed: the log has no end mark".to_owned()] }
        } else {
            list::find_problems(directory, &found)
        };
        for problem in problems {
            let (mark, shown) = (console.errors.warning("warning:"), directory.display());
            writeln!(std::io::stderr(), "{mark} the last records of {shown} may be missing: {problem}")?;
        }
    }
    Ok(())
}

/// Publishes all records in order of their times.
fn play(
    client: &Client,
    tracks: &mut [Track],
    speed: Speed,
    start: Instant,
    stop: &StopFlag,
    progress: &TransferProgress,
) -> Result<RecordCounts> {
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (index, track) in tracks.iter_mut().enumerate() {
        next.extend(track.next_time()?.map(|time_ns| Reverse((time_ns, index))));
    }
    // The time of the first record that has a time. Recordings of earlier versions of Dunlin begin with states that
    // have no time.
    let mut first_ns = None;
    let mut published = RecordCounts::default();
    while let Some(Reverse((time_ns, index))) = next.pop() {
        if time_ns > 0 {
            let first_ns = *first_ns.get_or_insert(time_ns);
            if let Some(factor) = speed.0 {
                let due = Duration::from_secs_f64(time_ns.saturating_sub(first_ns) as f64 / 1e9 / factor);
                wait_until(start + due, &mut tracks[index], stop)?;
            }
        }
        if stop.is_set() {
            break;
        }
        let before = tracks[index].offset;
        published += tracks[index].publish()?;
        progress.add((tracks[index].offset - before) as u64);
        let time_ns = tracks[index].next_time()?;
        next.extend(time_ns.map(|time_ns| Reverse((time_ns, index))));
        let track = &tracks[index];
        // Another recording has later records of the topic if the region moved to another process.
        let continues = || next.iter().any(|Reverse((_, other))| tracks[*other].topic == track.topic);
        if track.is_given_up && !continues() {
            client
                .delete_topic(&track.topic)
                .with_context(|| format!("cannot delete topic {}", track.topic))?;
        }
    }
    tracks.iter_mut().try_for_each(|track| track.publisher.flush().map(drop))?;
    Ok(published)
}

fn wait_until(due: Instant, track: &mut Track, stop: &StopFlag) -> Result<()> {
    while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        // Sends the records that were published before this pause. Otherwise, subscribers would receive them only after
        // the pause.
        track.publisher.flush()?;
        if stop.is_set() {
            break;
        }
        thread::sleep(left.min(SLEEP_MAX));
    }
    Ok(())
}

/// One topic of a recording, while its records are published again.
struct Track {
    /// The directory of the recording.
    recording: PathBuf,
    topic: String,
    /// The pattern of the topic's subjects; `None` if the topic's name is its only subject.
    pattern: Option<Pattern>,
    /// The topic's reducer.
    reducer: ReducerConfig,
    /// The subject tail for states and merged records, which have no subject in the recording. A subject's tail is the
    /// part from the first wildcard of `pattern` on.
    state_tail: String,
    /// The number that identifies the log's first file.
    identity: Option<u64>,
    /// The number of records that were read from the log, including those that the recorder added.
    records_read: u64,
    /// Whether the last published frame marks that the topic's process gave up the region. Such a process deletes the
    /// region's topic, and so does the replay, if no records follow. A topic with another kind of state stays.
    is_given_up: bool,
    reader: dunlin_journal::LogScan,
    publisher: Publisher,
    /// The frames that the last read of the log returned.
    frames: Vec<u8>,
    offset: usize,
    /// Whether the topic belongs to a region of a world. The first record of such a topic must be appended alone; for
    /// simplicity, each of its records is appended alone.
    is_region: bool,
}

impl Track {
    /// Creates the topic with its recorded configuration. Returns `None` for a log without records.
    fn open(client: &Client, recording: &Path, dir: &Path) -> Result<Option<Track>> {
        let reader = Reader::open(Arc::new(RealDisk), dir)
            .with_context(|| format!("cannot read {}", dir.display()))?;
        let topic = reader.name().to_owned();
        let Some(RecordedConfig { reducer, pattern }) = first_state(&reader)? else { return Ok(None) };
        // The topic of a replayed region gets the same limits as the topic of a region in a running world.
        let is_region = reducer.kind == REGION;
        let pattern_text = pattern.as_ref().map(|pattern| pattern.as_str().to_owned());
        let subject = pattern_text.clone().unwrap_or_else(|| topic.clone());
        let mut config =
            TopicConfig { pattern: pattern_text, reducer: Some(reducer.clone()), ..TopicConfig::default() };
        if is_region {
            (config.record_bytes_max, config.retention.bytes) = (REGION_BYTES, REGION_BYTES.into());
        }
        client.create_topic(&topic, &config, true).with_context(|| format!("cannot create topic {topic}"))?;
        let publisher = client.publisher(&subject).with_context(|| format!("cannot publish to {topic}"))?;
        let (recording, identity) = (recording.to_owned(), reader.identity());
        Ok(Some(Track {
            recording,
            topic,
            state_tail: pattern.as_ref().map(state_tail).unwrap_or_default(),
            pattern,
            reducer,
            identity,
            records_read: 0,
            is_given_up: false,
            reader: reader.scan(Position::default()),
            publisher,
            frames: Vec::new(),
            offset: 0,
            is_region,
        }))
    }

    /// The append time of the next record; `None` at the end of the log.
    fn next_time(&mut self) -> Result<Option<u64>> {
        while self.offset == self.frames.len() {
            match self.reader.next().context("cannot read the recording")? {
                None => return Ok(None),
                Some(ScanItem::Hole(hole)) => bail!("the recording has a gap: {hole}"),
                Some(ScanItem::Records(records)) => {
                    self.frames.clear();
                    self.frames.extend_from_slice(records.frames);
                    self.offset = 0;
                }
            }
        }
        Ok(Frame::split(&self.frames[self.offset..]).map(|(frame, _)| frame.append_time_ns()))
    }

    /// Publishes the next record, unless the recorder added it.
    fn publish(&mut self) -> Result<RecordCounts> {
        let nothing = RecordCounts::default();
        let Some((frame, taken)) = Frame::split(&self.frames[self.offset..]) else { return Ok(nothing) };
        self.offset += taken;
        self.records_read += 1;
        self.is_given_up = false;
        let payload = Payload::Copied(frame.payload());
        let published = match recording::frame_kind(&frame)? {
            FrameKind::Sum(_) => return Ok(nothing),
            FrameKind::End => {
                self.publisher.flush()?;
                self.is_given_up = self.is_region;
                return Ok(nothing);
            }
            FrameKind::State(config) => {
                if config.pattern != self.pattern {
                    let why =
                        "changes its pattern of subjects within the recording, which a replay cannot do";
                    return Err(CommandRefusal(format!("topic {} {why}", self.topic)).into());
                }
                if config.reducer != self.reducer {
                    let why = "changes its reducer within the recording, which a replay cannot do";
                    return Err(CommandRefusal(format!("topic {} {why}", self.topic)).into());
                }
                let meta = RecordMeta { subject_tail: &self.state_tail, ..RecordMeta::default() };
                self.publisher.send(Draft { meta, payload })?;
                RecordCounts { states: 1, ..nothing }
            }
            FrameKind::Record => {
                check_subject(&self.topic, self.pattern.as_ref(), &frame)?;
                let headers: Vec<(&str, &[u8])> = frame.headers().collect();
                let mut meta = frame.to_meta(&headers);
                if meta.subject_tail.is_empty() {
                    meta.subject_tail = &self.state_tail;
                }
                self.publisher.send(Draft { meta, payload })?;
                RecordCounts { records: 1, ..nothing }
            }
        };
        if self.is_region {
            self.publisher.flush()?;
        }
        Ok(published)
    }
}

/// The subject tail for records without a subject: the part of the pattern from its first wildcard on, with the token
/// `_` in place of each wildcard. The whole subject is then exactly as long as the pattern, and therefore never too
/// long.
fn state_tail(pattern: &Pattern) -> String {
    pattern.as_str()[pattern.literal_prefix().len()..].replace(['*', '>'], "_")
}

fn check_subject(topic: &str, pattern: Option<&Pattern>, frame: &Frame<'_>) -> Result<()> {
    match pattern {
        Some(pattern) => Ok(recording::check_subject(pattern, frame)?),
        None if frame.subject_tail().is_empty() => Ok(()),
        None => {
            let why = "has several subjects, but the recording has no pattern of them, because an earlier version of \
                       Dunlin created it: record the topic again";
            Err(CommandRefusal(format!("topic {topic} {why}")).into())
        }
    }
}

/// Returns the topic's configuration, which the first record of the log contains.
fn first_state(reader: &Reader) -> Result<Option<RecordedConfig>> {
    let mut scan = reader.scan(Position::default());
    let Some(ScanItem::Records(records)) = scan.next().context("cannot read the recording")? else {
        return Ok(None);
    };
    let Some((frame, _)) = Frame::split(records.frames) else { return Ok(None) };
    match recording::frame_kind(&frame)? {
        FrameKind::State(config) => Ok(Some(config)),
        _ => {
            let why = "does not start with a state: `dunlin feed record` did not create it";
            Err(CommandRefusal(format!("{} {why}", reader.name())).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replayed_state_gets_a_subject_that_matches_the_pattern() {
        for (text, expected) in
            [("p.>", "_"), ("p.*.eu.>", "_.eu._"), (">", "_"), ("*.a", "_.a"), ("p.q", "")]
        {
            let pattern = Pattern::parse(text).unwrap();
            let tail = state_tail(&pattern);
            assert_eq!(tail, expected, "{text}");
            assert!(pattern.matches_parts(pattern.literal_prefix(), &tail), "{text}");
        }
    }

    #[test]
    fn replay_speed_is_a_factor_or_the_word_max() {
        assert_eq!(speed("10x"), Ok(Speed(Some(10.0))));
        assert_eq!(speed("max"), Ok(Speed(None)));
        assert!(speed("fast").is_err() && speed("0x").is_err() && speed("10").is_err());
    }
}
