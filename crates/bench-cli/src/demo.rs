//! The demo, which replays recorded markets to many subscribers. For each record, each subscriber must receive either
//! the record or a gap notice. The [`ledger`] counts the published lines. To judge a subscriber, the demo compares the
//! ledger with the records and gaps that the subscriber received. The demo never uses the node's own statistics.

mod account;
mod books;
pub mod child;
mod display;
pub mod flock;
mod ledger;
mod plan;
mod player;
mod process;
mod reader;
mod recording;
mod report;
mod run;
mod schedule;
mod source;
mod verdicts;
pub mod world;

use std::time::Duration;

use anyhow::{Result, bail};
use dunlin::Node;
use dunlin_cli::commands::demo::Speed;
use dunlin_cli::console::{Console, format_bytes, grouped};
use dunlin_cli::signals::StopFlag;
use dunlin_topic::{Retention, TopicConfig, format_duration};

use books::Books;
use display::Display;
use ledger::LineLedger;
use plan::{PLANS, SHORT_BYTES, SHORT_OF, SHORT_TOPIC};
use player::RecordingPublisher;
use run::DemoRun;
use schedule::{ScheduledLine, schedule};

pub use recording::MarketRecording;
pub use source::ReplaySource;

/// The options of the demo: the recordings to play, their speed, and the node to which records are published.
pub struct DemoOptions<'a> {
    pub source: &'a ReplaySource,
    pub speed: Speed,
    pub node: &'a Node,
    /// The node's address, for subscribers in other processes.
    pub url: String,
}

/// The result of the demo: how many records are not accounted for (neither received nor reported in a gap notice), and
/// how many replicas have a wrong order book.
pub struct DemoResult {
    pub unaccounted: u64,
    /// The number of replicas with at least one order book that differs from the expected book.
    pub different: usize,
    pub interrupted: bool,
}

/// The memory in bytes that a topic needs for each line, in addition to the bytes of the line. This number serves to
/// compute the retention of a topic that must keep a whole market.
const RECORD_BYTES_EXTRA: u64 = 32;
const RETENTION_BYTES_MIN: u64 = 1 << 20;

impl DemoOptions<'_> {
    /// Runs the whole demo: publishes all lines, waits for the subscribers, and prints a table of the results.
    pub fn run(&self, console: &Console, stop: &StopFlag) -> Result<DemoResult> {
        let recordings = &self.source.recordings;
        let mut ledger = LineLedger::default();
        let mut streams = Vec::new();
        for (at, recording) in recordings.iter().enumerate() {
            for (topic, bytes) in topics(recording) {
                self.create(&topic, bytes)?;
                ledger.add_topic(&topic, recording);
                streams.push(RecordingPublisher {
                    publisher: self.node.publisher(&topic)?,
                    topic,
                    recording: at,
                });
            }
        }
        let lines_and_topics = |recording: &MarketRecording| {
            (recording.len() as u64, topics(recording).into_iter().map(|topic| topic.0).collect())
        };
        let recorded = recordings.iter().map(lines_and_topics).collect();
        let mut demo_run = DemoRun::new(self.node, &self.url, recorded, Display::new(console), stop.clone());
        self.print_introduction(&demo_run)?;
        demo_run.start_subscribers()?;
        let mut books = Books::open(self.node, &self.url, recordings)?;
        let plan = schedule(recordings, self.speed);
        let publish_books = |due: ScheduledLine| {
            let flow = demo_run.wait_until_due(due)?;
            if flow.is_continue() {
                books.publish_line(due.recording, recordings[due.recording].line(due.line))?;
            }
            Ok(flow)
        };
        let ends = player::play(recordings, plan, &mut streams, &mut ledger, publish_books)?;
        demo_run.finish(&ends)?;
        let verdicts = demo_run.judge(&ledger);
        let book_verdicts = books.close()?;
        let mut out = console.out();
        verdicts.write(&mut out, console)?;
        book_verdicts.write(&mut out, console)?;
        std::io::Write::flush(&mut out)?;
        let different = book_verdicts.different();
        Ok(DemoResult { unaccounted: verdicts.unaccounted(), different, interrupted: stop.is_set() })
    }

    fn create(&self, topic: &str, bytes: u64) -> Result<()> {
        let retention = Retention { bytes, ..Retention::default() };
        let config = TopicConfig { retention, ..TopicConfig::default() };
        self.node.create_topic(topic, config, false)?;
        Ok(())
    }

    fn print_introduction(&self, demo_run: &DemoRun) -> Result<()> {
        for recording in &self.source.recordings {
            let span = format_duration(Duration::from_millis(recording.span_ms()));
            let speed_text = match self.speed {
                Speed::Max => "replayed without pauses".to_owned(),
                speed => format!(
                    "replayed at {:.0}x in {:.0} s",
                    schedule::factor(speed, recording),
                    schedule::duration(speed, recording).as_secs_f64()
                ),
            };
            let lines = grouped(recording.len() as u64);
            let MarketRecording { topic, source, .. } = recording;
            demo_run.print(&format!(
                "  {topic:<28}{lines:>7} lines of {source}, recorded over {span}, {speed_text}"
            ))?;
        }
        demo_run.print(&format!(
            "  {SHORT_TOPIC}  the lines of {SHORT_OF} again, with a retention of {}",
            format_bytes(SHORT_BYTES)
        ))?;
        demo_run.print("subscribers:")?;
        PLANS.iter().try_for_each(|plan| demo_run.print(&format!("  {:<12} {}", plan.name, plan.about)))?;
        demo_run.print("replicas of the order books that follow from the lines:")?;
        Books::introduction().try_for_each(|line| demo_run.print(&line))?;
        demo_run.print("")
    }
}

/// Returns the topics to which a recording's lines are published, each with its retention in bytes.
fn topics(recording: &MarketRecording) -> Vec<(String, u64)> {
    let bytes = recording.bytes() + recording.len() as u64 * RECORD_BYTES_EXTRA;
    // When a topic is full, it deletes a whole segment, which is an eighth of the topic's retention. The lines take
    // only 7/9 of the retention that is computed here, so the topic never becomes full.
    let bytes = (bytes * 9 / 7).max(RETENTION_BYTES_MIN);
    let mut topics = vec![(recording.topic.clone(), bytes)];
    if recording.topic == SHORT_OF {
        topics.push((SHORT_TOPIC.to_owned(), SHORT_BYTES));
    }
    topics
}

impl DemoResult {
    /// Returns an error if a record is not accounted for, or if a replica has a wrong order book.
    pub fn check(&self) -> Result<()> {
        match (self.unaccounted, self.different) {
            (0, 0) => Ok(()),
            (0, different) => bail!("the order books of {different} replicas are wrong"),
            (lost, _) => bail!("{} records were neither received nor reported as a gap", grouped(lost)),
        }
    }
}
