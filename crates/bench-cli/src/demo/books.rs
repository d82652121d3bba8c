//! Runs the part of the demo that is about order books. Each line of a recording is converted to records of order
//! books. Several replicas follow the books, some of them with pauses or lost connections.
//!
//! The [`oracle`] computes the expected books from the same lines with a simple, separate implementation. At the end,
//! all price levels of every replica's books must equal the oracle's price levels.

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
use dunlin_topic::frame::RecordMeta;
use dunlin_topic::{Draft, Payload, Publish, Publisher, ReducerConfig, Retention, TopicConfig};

use super::recording::MarketRecording as Lines;
pub use oracle::{ExpectedBooks, SizeByPrice};
use reader::{PLANS, ReplicaPlan};
pub use reader::{ReplicaResult, add, levels};
pub use verdict::ReplicaVerdicts;

/// The retention in bytes of a topic with an order book. The retention is small, so that slow readers miss records.
const RETENTION_BYTES: u64 = 256 << 10;
/// A pattern that matches the topics of all order books.
pub const PATTERN: &str = "md.>";
/// How long the demo waits for the replicas after the last line. After this time, the demo compares the books, even if
/// a replica has not read all records.
const STALLED_AFTER: Duration = Duration::from_secs(20);

/// The demo's order books: their publishers, and the replicas that follow the books.
pub struct Books {
    node: Node,
    markets: Vec<Market>,
    progress: Arc<PlayProgress>,
    readers: Vec<(&'static ReplicaPlan, JoinHandle<Result<ReplicaResult>>)>,
    lines: u64,
    lines_total: u64,
}

/// The progress of the replay, which the publishing thread and all readers share.
#[derive(Debug, Default)]
pub struct PlayProgress {
    /// Whether half of the lines have been played. One replica of the demo starts late: it waits for this flag.
    half: AtomicBool,
    /// The sequence number of each topic's last record. Set when all lines have been played.
    ends: OnceLock<BTreeMap<String, u64>>,
    /// Whether the demo has ended. Readers then stop, even before the last record.
    has_ended: AtomicBool,
}

struct Market {
    recording: Recording,
    oracle: ExpectedBooks,
    /// The publishers, one for each book, in the order of the recording's books.
    publishers: Vec<Publisher>,
    records: Vec<u64>,
}

impl Books {
    /// Starts all replicas. The topic of a book is created later, with the book's first record.
    pub fn open(node: &Node, url: &str, recordings: &[Lines]) -> Result<Books> {
        let progress = Arc::new(PlayProgress::default());
        let markets = recordings.iter().map(Market::new).collect::<Result<_>>()?;
        let start = |plan: &'static ReplicaPlan| {
            let (node, url, progress) = (node.clone(), url.to_owned(), Arc::clone(&progress));
            (plan, std::thread::spawn(move || reader::run(plan, &node, &url, &progress)))
        };
        let lines_total = recordings.iter().map(|lines| lines.len() as u64).sum();
        let readers = PLANS.iter().map(start).collect();
        Ok(Books { node: node.clone(), markets, progress, readers, lines: 0, lines_total })
    }

    /// Returns one line for each replica: the replica's name and a description.
    pub fn introduction() -> impl Iterator<Item = String> {
        PLANS.iter().map(|plan| format!("  {:<12} {}", plan.name, plan.about))
    }

    /// Converts `line`, a line of the recording with index `recording`, to records of order books, and publishes them.
    pub fn publish_line(&mut self, recording: usize, line: &[u8]) -> Result<()> {
        self.lines += 1;
        if self.lines * 2 >= self.lines_total {
            self.progress.half.store(true, Ordering::Release);
        }
        let market = &mut self.markets[recording];
        market.oracle.apply_line(line).context("cannot compute the correct order books")?;
        market.push(&self.node, &[line, b"\n"])
    }

    /// Waits until the replicas have read the last record, and compares their books with the oracle's books.
    pub fn close(mut self) -> Result<ReplicaVerdicts> {
        let mut ends = BTreeMap::new();
        for market in &mut self.markets {
            market.end(&self.node)?;
            let topics = market.recording.books().iter().map(|book| book.topic.clone());
            ends.extend(topics.zip(market.records.iter().copied()));
        }
        // `set` fails only if `ends` already has a value. No other code sets one.
        let _ = self.progress.ends.set(ends);
        self.progress.half.store(true, Ordering::Release);
        let deadline = Instant::now() + STALLED_AFTER;
        while self.readers.iter().any(|(_, reader)| !reader.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.progress.has_ended.store(true, Ordering::Release);
        let expected_books = self.expected_books();
        let mut verdicts = ReplicaVerdicts::default();
        for (plan, reader) in self.readers {
            let result = reader.join().map_err(|_| anyhow!("subscriber {:?} panicked", plan.name))?;
            let result = result.with_context(|| format!("subscriber {:?} failed", plan.name))?;
            verdicts.judge(plan.name, &result, &expected_books);
        }
        Ok(verdicts)
    }

    /// Returns the oracle's books, by topic.
    fn expected_books(&self) -> HashMap<String, SizeByPrice> {
        self.markets.iter().flat_map(|market| market.oracle.books()).collect()
    }
}

impl Market {
    fn new(lines: &Lines) -> Result<Market> {
        let format = RecordingFormat::of(lines.line(0))
            .with_context(|| format!("{} is not a recording of Betfair or Bitstamp", lines.source))?;
        Ok(Market {
            recording: Recording::new(format, &RecordingOptions::default()),
            oracle: ExpectedBooks::of(format),
            publishers: Vec::new(),
            records: Vec::new(),
        })
    }

    fn push(&mut self, node: &Node, pieces: &[&[u8]]) -> Result<()> {
        let mut records = Records::default();
        pieces.iter().for_each(|piece| self.recording.push(piece, &mut |item| records.add(item)));
        self.publish(node, records)
    }

    fn end(&mut self, node: &Node) -> Result<()> {
        let mut records = Records::default();
        self.recording.end(&mut |item| records.add(item));
        self.oracle.end();
        self.publish(node, records)
    }

    fn publish(&mut self, node: &Node, records: Records) -> Result<()> {
        for book in &self.recording.books()[self.publishers.len()..] {
            self.publishers.push(open_topic(node, book)?);
            self.records.push(0);
        }
        let mut from = 0;
        for (book, event_time_ns, end) in records.entries {
            let meta = RecordMeta { event_time_ns: Some(event_time_ns), ..RecordMeta::default() };
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

/// The book records of one line. An entry has the index of the book, the event time, and the offset in `bytes` at which
/// the record's payload ends.
#[derive(Debug, Default)]
struct Records {
    entries: Vec<(usize, u64, usize)>,
    bytes: Vec<u8>,
}

impl Records {
    fn add(&mut self, item: RecordingItem<'_>) {
        // Only records matter here. The command `dunlin feed import` reports other items, such as errors in the
        // recording.
        if let RecordingItem::Record { book, event_time_ns, payload } = item {
            self.bytes.extend_from_slice(payload);
            self.entries.push((book, event_time_ns, self.bytes.len()));
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
