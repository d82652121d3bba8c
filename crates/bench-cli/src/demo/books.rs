//! The recordings as order books: each line becomes records of books, which replicas of many kinds follow
//! under bad conditions.
//!
//! The [`oracle`], a simple model of the same lines, is the truth. In the end every book of every replica
//! must equal the oracle's, level by level.

mod oracle;
mod reader;
mod verdict;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use dunlin::Node;
use dunlin_feed::recording::{RecordedBook, Recording, RecordingFormat, RecordingItem, RecordingOptions};
use dunlin_topic::frame::Meta;
use dunlin_topic::{Draft, Payload, Publish, Publisher, ReducerConfig, Retention, TopicConfig};

use super::recording::MarketRecording as Lines;
pub use oracle::{Oracle, SizeByPrice};
use reader::{PLANS, ReplicaPlan};
pub use reader::{ReplicaResult, add, levels};
pub use verdict::ReplicaVerdicts;

/// A short retention, so that slow readers fall behind.
const RETENTION_BYTES: u64 = 256 << 10;
/// The topics of all books.
pub const PATTERN: &str = "md.>";
/// The time without progress after which a replica is judged in its present state.
const STALLED_AFTER: Duration = Duration::from_secs(20);

/// The demo's order books: their publishers, and the replicas that follow them.
pub struct Books {
    node: Node,
    markets: Vec<Market>,
    stage: Arc<PlayProgress>,
    readers: Vec<(&'static ReplicaPlan, JoinHandle<Result<ReplicaResult>>)>,
    lines: u64,
    lines_all: u64,
}

/// The progress of the demo's replay, which the publisher and all readers share.
#[derive(Debug, Default)]
pub struct PlayProgress {
    /// Half of the lines have been played, so late readers start now.
    half: AtomicBool,
    /// The position at which every topic ended, once all lines are played.
    ends: OnceLock<BTreeMap<String, u64>>,
    /// The demo has ended, even if readers are not done.
    over: AtomicBool,
}

struct Market {
    recording: Recording,
    oracle: Oracle,
    /// A publisher for each book, in the recording's order.
    publishers: Vec<Publisher>,
    records: Vec<u64>,
}

impl Books {
    /// Starts the readers that are present from the first line.
    pub fn open(node: &Node, url: &str, recordings: &[Lines]) -> Result<Books> {
        let stage = Arc::new(PlayProgress::default());
        let markets = recordings.iter().map(Market::new).collect::<Result<_>>()?;
        let start = |plan: &'static ReplicaPlan| {
            let (node, url, stage) = (node.clone(), url.to_owned(), Arc::clone(&stage));
            (plan, std::thread::spawn(move || reader::run(plan, &node, &url, &stage)))
        };
        let lines_all = recordings.iter().map(|lines| lines.len() as u64).sum();
        let readers = PLANS.iter().map(start).collect();
        Ok(Books { node: node.clone(), markets, stage, readers, lines: 0, lines_all })
    }

    /// Describes each replica in a line.
    pub fn introduction() -> impl Iterator<Item = String> {
        PLANS.iter().map(|plan| format!("  {:<12} {}", plan.name, plan.about))
    }

    /// Plays a line of a recording.
    pub fn line(&mut self, recording: usize, line: &[u8]) -> Result<()> {
        self.lines += 1;
        if self.lines * 2 >= self.lines_all {
            self.stage.half.store(true, Ordering::Release);
        }
        let market = &mut self.markets[recording];
        market.oracle.line(line).context("cannot compute the correct order books")?;
        market.push(&self.node, &[line, b"\n"])
    }

    /// Waits for the readers after the last line, and judges them.
    pub fn close(mut self) -> Result<ReplicaVerdicts> {
        let mut ends = BTreeMap::new();
        for market in &mut self.markets {
            market.end(&self.node)?;
            let topics = market.recording.books().iter().map(|book| book.topic.clone());
            ends.extend(topics.zip(market.records.iter().copied()));
        }
        // Only this line sets the value.
        let _ = self.stage.ends.set(ends);
        self.stage.half.store(true, Ordering::Release);
        let deadline = Instant::now() + STALLED_AFTER;
        while self.readers.iter().any(|(_, reader)| !reader.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.stage.over.store(true, Ordering::Release);
        let truth = self.truth();
        let mut verdicts = ReplicaVerdicts::default();
        for (plan, reader) in self.readers {
            let told = reader.join().map_err(|_| anyhow!("subscriber {:?} panicked", plan.name))?;
            let told = told.with_context(|| format!("subscriber {:?} failed", plan.name))?;
            verdicts.judge(plan.name, &told, &truth);
        }
        Ok(verdicts)
    }

    /// The oracle's books by topic.
    fn truth(&self) -> HashMap<String, SizeByPrice> {
        self.markets.iter().flat_map(|market| market.oracle.books()).collect()
    }
}

impl Market {
    fn new(lines: &Lines) -> Result<Market> {
        let layout = RecordingFormat::of(lines.line(0))
            .with_context(|| format!("{} is not a recording of Betfair or Bitstamp", lines.source))?;
        Ok(Market {
            recording: Recording::new(layout, &RecordingOptions::default()),
            oracle: Oracle::of(layout),
            publishers: Vec::new(),
            records: Vec::new(),
        })
    }

    fn push(&mut self, node: &Node, pieces: &[&[u8]]) -> Result<()> {
        let mut records = Records::default();
        pieces.iter().for_each(|piece| self.recording.push(piece, &mut |item| records.take(item)));
        self.publish(node, records)
    }

    fn end(&mut self, node: &Node) -> Result<()> {
        let mut records = Records::default();
        self.recording.end(&mut |item| records.take(item));
        self.oracle.end();
        self.publish(node, records)
    }

    fn publish(&mut self, node: &Node, records: Records) -> Result<()> {
        for book in &self.recording.books()[self.publishers.len()..] {
            self.publishers.push(open_topic(node, book)?);
            self.records.push(0);
        }
        let mut from = 0;
        for (book, event_time_ns, end) in records.made {
            let meta = Meta { event_time_ns: Some(event_time_ns), ..Meta::default() };
            let payload = Payload::Copied(&records.bytes[from..end]);
            let topic = &self.recording.books()[book].topic;
            let published = self.publishers[book].send(Draft { meta, payload });
            published.with_context(|| format!("cannot publish to {topic}"))?;
            self.records[book] += 1;
            from = end;
        }
        Ok(())
    }
}

/// A line's records: book, event time, and the end of the payload.
#[derive(Debug, Default)]
struct Records {
    made: Vec<(usize, u64, usize)>,
    bytes: Vec<u8>,
}

impl Records {
    fn take(&mut self, item: RecordingItem<'_>) {
        // Other contents of recordings are skipped here; `dunlin feed import` reports them.
        if let RecordingItem::Record { book, event_time_ns, payload } = item {
            self.bytes.extend_from_slice(payload);
            self.made.push((book, event_time_ns, self.bytes.len()));
        }
    }
}

fn open_topic(node: &Node, book: &RecordedBook) -> Result<Publisher> {
    let reducer = ReducerConfig { kind: book.kind.to_owned(), options: book.scale.options() };
    let retention = Retention { bytes: RETENTION_BYTES, ..Retention::default() };
    let config = TopicConfig { reducer: Some(reducer), retention, ..TopicConfig::default() };
    node.create_topic(&book.topic, config, false)
        .with_context(|| format!("cannot create topic {}", book.topic))?;
    Ok(node.publisher(&book.topic)?)
}
