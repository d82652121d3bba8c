//! Publishes the recording of one market through one node: the recorded lines, and the records of the market's order
//! books.
//!
//! All lines that are due are published together, and the node acknowledges them when they are on disk. If the node
//! fails, the client later sends the unacknowledged records again, with the numbers that they had before. The node
//! therefore stores no record twice. If the node refuses records, this module publishes these records again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dunlin_cli::commands::demo::Speed;
use dunlin_cli::signals::StopFlag;
use dunlin_client::{CallError, Client, ClientOptions, Publisher};
use dunlin_feed::recording::{
    RecordedBook, Recording as Parsed, RecordingFormat, RecordingItem, RecordingOptions,
};
use dunlin_topic::{
    Draft, DurableOptions, Payload, Publish, PublishError, RecordMeta, ReducerConfig, Retention, TopicConfig,
};

use super::{ALL_LINES, ClusterDemoState, MarketResult, PATIENCE, POLL_INTERVAL};
use crate::demo::books::ExpectedBooks;
use crate::demo::recording::MarketRecording;
use crate::demo::schedule::schedule;

/// The most lines that are published together.
const BATCH_LINES_MAX: usize = 512;
/// The pause before a failed or refused call is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Publishes one market's recording: the lines, and the records of the order books.
pub struct MarketPublisher<'a> {
    recording: &'a MarketRecording,
    client: Client,
    state: &'a Arc<ClusterDemoState>,
    lines: Topic,
    parsed: Parsed,
    oracle: ExpectedBooks,
    books: Vec<Topic>,
}

/// A topic, and its only publisher.
struct Topic {
    name: String,
    publisher: Publisher,
    records: u64,
}

/// The book records of some lines. An entry has the index of the book, the event time, and the payload.
type BookRecords = Vec<(usize, u64, Vec<u8>)>;

impl<'a> MarketPublisher<'a> {
    /// Connects to the node and creates the topic for the lines.
    pub fn new(
        recording: &'a MarketRecording,
        url: &str,
        state: &'a Arc<ClusterDemoState>,
    ) -> Result<MarketPublisher<'a>> {
        let options =
            ClientOptions { name: format!("demo: {}", recording.topic), ..ClientOptions::default() };
        let client = retry(|| Client::connect(url, options.clone()).map_err(anyhow::Error::from))?;
        let format = RecordingFormat::of(recording.line(0))
            .with_context(|| format!("{} is not a recording of Betfair or Bitstamp", recording.source))?;
        let lines = Topic::open(&client, &recording.topic, None)?;
        // Bitstamp's recording lists two orders that had ended before the recording began. If these orders stayed in
        // the book, the best bid would nearly always exceed the best ask. The option `evict_phantoms` removes such
        // orders.
        let parsed =
            Parsed::new(format, &RecordingOptions { evict_phantoms: true, ..RecordingOptions::default() });
        Ok(MarketPublisher {
            recording,
            client,
            state,
            lines,
            parsed,
            oracle: ExpectedBooks::of(format),
            books: Vec::new(),
        })
    }

    /// Publishes all lines. A line is published when it is due and the gate of [`ClusterDemoState`] allows it.
    pub fn play(mut self, speed: Speed, stop: &StopFlag) -> Result<MarketResult> {
        let (started, all) = (Instant::now(), self.recording.len());
        let plan: Vec<Duration> =
            schedule(std::slice::from_ref(self.recording), speed).map(|due| due.at).collect();
        let mut at = 0;
        while at < all && !stop.is_set() {
            ensure!(!self.state.is_over(), "publishing {} was stopped at line {at}", self.recording.topic);
            let open_lines = (all as u64 * self.state.gate() / ALL_LINES) as usize;
            let due =
                plan[at..].iter().take(BATCH_LINES_MAX).take_while(|due| **due <= started.elapsed()).count();
            let end = (at + due).min(open_lines);
            if end <= at {
                std::thread::sleep(POLL_INTERVAL);
                continue;
            }
            self.publish(at, end)?;
            self.state.lines.fetch_add((end - at) as u64, Ordering::Relaxed);
            at = end;
        }
        let book_records = self.parse_records(|parsed, take| parsed.end(take));
        self.publish_book_records(book_records)?;
        self.oracle.end();
        let topics = self.books.iter().chain([&self.lines]);
        let ends: BTreeMap<_, _> = topics.map(|topic| (topic.name.clone(), topic.records)).collect();
        Ok(MarketResult { ends, books: self.oracle.books() })
    }

    fn publish(&mut self, from: usize, to: usize) -> Result<()> {
        let recording = self.recording;
        let lines: Vec<&[u8]> = (from..to).map(|at| recording.line(at)).collect();
        let drafts: Vec<Draft<'_>> = lines.iter().map(|line| Draft::from(*line)).collect();
        self.lines.publish(&drafts, self.state)?;
        lines
            .iter()
            .try_for_each(|line| self.oracle.apply_line(line))
            .context("cannot compute the correct order books")?;
        let book_records = self.parse_records(|parsed, take| {
            lines.iter().for_each(|line| {
                parsed.push(line, take);
                parsed.push(b"\n", take);
            });
        });
        self.publish_book_records(book_records)
    }

    fn parse_records(
        &mut self,
        parse: impl FnOnce(&mut Parsed, &mut dyn FnMut(RecordingItem<'_>)),
    ) -> BookRecords {
        let (mut book_records, oracle) = (Vec::new(), &mut self.oracle);
        parse(&mut self.parsed, &mut |item| match item {
            RecordingItem::Record { book, event_time_ns, payload } => {
                book_records.push((book, event_time_ns, payload.to_vec()));
            }
            RecordingItem::Phantom(phantom) => oracle.remove_phantom(phantom.id),
            // Only records matter here. The command `dunlin feed import` reports other items, such as errors in the
            // recording.
            _ => {}
        });
        book_records
    }

    fn publish_book_records(&mut self, book_records: BookRecords) -> Result<()> {
        for RecordedBook { topic, kind, scale, .. } in &self.parsed.books()[self.books.len()..] {
            let reducer = ReducerConfig { kind: (*kind).to_owned(), options: scale.options() };
            self.state.set_reducer(topic, reducer.clone());
            self.books.push(Topic::open(&self.client, topic, Some(reducer))?);
        }
        for (book, topic) in self.books.iter_mut().enumerate() {
            let records_of_book = book_records.iter().filter(|(index, ..)| *index == book);
            let drafts: Vec<Draft<'_>> = records_of_book
                .map(|(_, event_time_ns, payload)| Draft {
                    meta: RecordMeta { event_time_ns: Some(*event_time_ns), ..RecordMeta::default() },
                    payload: Payload::Copied(payload),
                })
                .collect();
            if !drafts.is_empty() {
                topic.publish(&drafts, self.state)?;
            }
        }
        Ok(())
    }
}

impl Topic {
    fn open(client: &Client, name: &str, reducer: Option<ReducerConfig>) -> Result<Topic> {
        let retention = Retention { bytes: DurableOptions::RETENTION_BYTES_DEFAULT, ..Retention::default() };
        let config = TopicConfig {
            durable: Some(DurableOptions::default()),
            reducer,
            retention,
            ..TopicConfig::default()
        };
        retry(|| match client.create_topic(name, &config, true) {
            Ok(()) => Ok(()),
            Err(error @ CallError::Refused(_)) => Err(anyhow::Error::from(error)),
            Err(error) => Err(anyhow::Error::from(error)),
        })
        .with_context(|| format!("cannot create topic {name}"))?;
        let publisher =
            retry(|| Ok(client.publisher(name)?)).with_context(|| format!("cannot publish to {name}"))?;
        Ok(Topic { name: name.to_owned(), publisher, records: 0 })
    }

    /// Publishes the records. Tries again until the node has acknowledged all of them, or until [`PATIENCE`] is over.
    fn publish(&mut self, drafts: &[Draft<'_>], state: &ClusterDemoState) -> Result<()> {
        let started = Instant::now();
        let mut outcome = self.publisher.publish_batch(drafts).map(Some);
        let receipt = loop {
            match outcome {
                Ok(receipt) => break receipt,
                Err(error) if started.elapsed() > PATIENCE || state.is_over() => {
                    return Err(error).with_context(|| format!("cannot publish to {}", self.name));
                }
                // The client has kept the records, and sends them again.
                Err(PublishError::Unknown(_)) => outcome = self.publisher.flush(),
                Err(_refused) => {
                    std::thread::sleep(RETRY_PAUSE);
                    outcome = self.publisher.publish_batch(drafts).map(Some);
                }
            }
        };
        state.waited_ns.fetch_max(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.records += drafts.len() as u64;
        match receipt {
            // This publisher is the topic's only one. If the last position differs from the number of its records, a
            // record was lost or stored twice.
            Some(receipt) if receipt.position.seq != self.records => bail!(
                "{} records were published to {}, but the position of the last record is {}",
                self.records,
                self.name,
                receipt.position
            ),
            _ => Ok(()),
        }
    }
}

/// Repeats a call until it succeeds, for at most [`PATIENCE`]. Meanwhile, nodes may fail and restart.
pub fn retry<T>(call: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call() {
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_unreachable) => std::thread::sleep(RETRY_PAUSE),
            done => return done,
        }
    }
}
