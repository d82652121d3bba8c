//! `feed replay`: publishes a recording again, to a running node.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dunlin_client::{Client, Publisher};
use dunlin_journal::{Item, Position, Reader, RealDisk};
use dunlin_topic::frame::Meta;
use dunlin_topic::{Draft, FoldConfig, Frame, Payload, Publish, TopicConfig};

use super::recording::{self, Recorded};
use crate::arguments::Global;
use crate::connect::connect;
use crate::console::{Console, grouped};
use crate::outcome::Refusal;
use crate::progress::{Progress, bytes_in};
use crate::signals::Stop;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin feed replay rec/                       as fast as it was recorded
  dunlin feed replay rec/ --speed max --url dunlin://127.0.0.1:4220

Each topic is made as it was configured, and published to in the order of its records; topics keep pace with each other. A
recording with a hole is refused: `dunlin feed verify` says where it is.")]
pub struct Arguments {
    /// The recording
    directory: PathBuf,
    /// How fast: 1x is as recorded, 10x ten times that, max does not wait
    #[arg(long, default_value = "1x", value_parser = speed)]
    speed: Speed,
}

/// How many times faster than it was; none does not wait.
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
        .ok_or_else(|| "expected a factor like 1x or 10x, or max".to_owned())
}

/// The longest sleep: whoever stops a replay waits no longer than this.
const NAP: Duration = Duration::from_millis(50);

pub fn run(arguments: &Arguments, global: &Global, console: &Console) -> Result<()> {
    let stop = Stop::on_signal()?;
    let client = connect(global, "dunlin feed replay")?;
    let (mut tracks, mut bytes) = (Vec::new(), 0);
    for dir in recording::logs(&arguments.directory)? {
        tracks.extend(Track::open(&client, &dir)?);
        bytes += bytes_in(&dir);
    }
    let start = Instant::now();
    let progress = Progress::of_bytes("replaying", Some(bytes));
    let published = play(&mut tracks, arguments.speed, start, &stop, &progress)?;
    drop(progress);
    let mark = console.errors.good("published");
    let topics = if tracks.len() == 1 { "topic" } else { "topics" };
    let seconds = start.elapsed().as_secs_f64();
    let records = grouped(published);
    Ok(writeln!(
        std::io::stderr(),
        "{mark} {records} records of {} {topics} in {seconds:.1} s",
        tracks.len()
    )?)
}

/// All records in the order of their times.
fn play(tracks: &mut [Track], speed: Speed, start: Instant, stop: &Stop, progress: &Progress) -> Result<u64> {
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (nth, track) in tracks.iter_mut().enumerate() {
        next.extend(track.next_time()?.map(|time_ns| Reverse((time_ns, nth))));
    }
    // The whole states at the beginning have no time of their own.
    let mut first_ns = None;
    let mut published = 0;
    while let Some(Reverse((time_ns, nth))) = next.pop() {
        if time_ns > 0 {
            let first_ns = *first_ns.get_or_insert(time_ns);
            if let Some(factor) = speed.0 {
                let due = Duration::from_secs_f64(time_ns.saturating_sub(first_ns) as f64 / 1e9 / factor);
                wait_until(start + due, &mut tracks[nth], stop)?;
            }
        }
        if stop.is_set() {
            break;
        }
        let before = tracks[nth].at;
        published += u64::from(tracks[nth].publish()?);
        progress.add((tracks[nth].at - before) as u64);
        next.extend(tracks[nth].next_time()?.map(|time_ns| Reverse((time_ns, nth))));
    }
    tracks.iter_mut().try_for_each(|track| track.publisher.flush().map(drop))?;
    Ok(published)
}

fn wait_until(due: Instant, track: &mut Track, stop: &Stop) -> Result<()> {
    while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        // What was sent before goes out before anybody sleeps.
        track.publisher.flush()?;
        if stop.is_set() {
            break;
        }
        thread::sleep(left.min(NAP));
    }
    Ok(())
}

/// One topic's records.
struct Track {
    reader: dunlin_journal::Scan,
    publisher: Publisher,
    /// The block that is being published, and how far.
    frames: Vec<u8>,
    at: usize,
}

impl Track {
    /// Makes the topic as it was; `None` for a log without records.
    fn open(client: &Client, dir: &Path) -> Result<Option<Track>> {
        let reader = Reader::open(Arc::new(RealDisk), dir)
            .with_context(|| format!("cannot read {}", dir.display()))?;
        let topic = reader.name().to_owned();
        let Some(fold) = first_state(&reader)? else { return Ok(None) };
        let config = TopicConfig { fold: Some(fold), ..TopicConfig::default() };
        client.create_topic(&topic, &config, true).with_context(|| format!("cannot create {topic}"))?;
        let publisher = client.publisher(&topic).with_context(|| format!("cannot publish to {topic}"))?;
        let reader = reader.scan(Position::default());
        Ok(Some(Track { reader, publisher, frames: Vec::new(), at: 0 }))
    }

    /// When the next record was appended; `None` at the end.
    fn next_time(&mut self) -> Result<Option<u64>> {
        while self.at == self.frames.len() {
            match self.reader.next().context("reading the recording")? {
                None => return Ok(None),
                Some(Item::Hole(hole)) => bail!("the recording has a hole: {hole}"),
                Some(Item::Records(records)) => {
                    self.frames.clear();
                    self.frames.extend_from_slice(records.frames);
                    self.at = 0;
                }
            }
        }
        Ok(Frame::split(&self.frames[self.at..]).map(|(frame, _)| frame.append_time_ns()))
    }

    /// Publishes the next record; false if it was a mark of the recorder's.
    fn publish(&mut self) -> Result<bool> {
        let Some((frame, taken)) = Frame::split(&self.frames[self.at..]) else { return Ok(false) };
        self.at += taken;
        let payload = Payload::Copied(frame.payload());
        match recording::recorded(&frame)? {
            Recorded::Sum(_) => return Ok(false),
            Recorded::State(_) => self.publisher.send(Draft { meta: Meta::default(), payload })?,
            Recorded::Record => {
                let headers: Vec<(&str, &[u8])> = frame.headers().collect();
                self.publisher.send(Draft { meta: frame.to_meta(&headers), payload })?;
            }
        }
        Ok(true)
    }
}

/// How the topic was configured, as the first record says.
fn first_state(reader: &Reader) -> Result<Option<FoldConfig>> {
    let mut scan = reader.scan(Position::default());
    let Some(Item::Records(records)) = scan.next().context("reading the recording")? else { return Ok(None) };
    let Some((frame, _)) = Frame::split(records.frames) else { return Ok(None) };
    match recording::recorded(&frame)? {
        Recorded::State(fold) => Ok(Some(fold)),
        _ => {
            let why = "does not begin with a state: it was not made by `dunlin feed record`";
            Err(Refusal(format!("{} {why}", reader.name())).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_factor_or_max() {
        assert_eq!(speed("10x"), Ok(Speed(Some(10.0))));
        assert_eq!(speed("max"), Ok(Speed(None)));
        assert!(speed("fast").is_err() && speed("0x").is_err() && speed("10").is_err());
    }
}
