//! The destinations of `dunlin feed import`: a running node, a directory with a recording, or, with `--check`, nothing.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dunlin_client::{Client, Publisher};
use dunlin_feed::recording::RecordedBook;
use dunlin_topic::{
    Draft, Frame, Payload, Publish, PublishError, RecordMeta, Reducer, ReducerConfig, Retention, TopicConfig,
};

use crate::commands::feed::recording::list::{self, RecordedTopic, RecordedTopics};
use crate::commands::feed::recording::{self, RecordCounts, RecordedLog};
use crate::console::TextPainter;
use crate::outage::OutageReport;
use crate::signals::StopFlag;
use crate::state::State;

/// A destination for the order books that `dunlin feed import` reads from an exchange's files.
pub trait ImportTarget {
    /// Adds the file's next order book. The index of the first book of a file is 0, and that of each further book is
    /// higher by 1.
    fn book(&mut self, recorded: &RecordedBook) -> Result<()>;

    /// Adds a record to the order book with the index `book`.
    fn record(&mut self, book: usize, event_time_ns: u64, payload: &[u8]) -> Result<()>;

    /// Waits until all records of the file are stored. Returns the number of these records; `None` if the target stores
    /// no records.
    fn finish(&mut self) -> Result<Option<u64>>;
}

/// The import target of `--check`: it discards the records, so that the files are only read and checked.
pub struct DryRunTarget;

impl ImportTarget for DryRunTarget {
    fn book(&mut self, _: &RecordedBook) -> Result<()> {
        Ok(())
    }

    fn record(&mut self, _: usize, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }
}

/// The import target of `--out`: a directory with a log for each book, which also contains checksums of the book's
/// state.
pub struct RecordingFolder {
    out: PathBuf,
    books: Vec<Book>,
    /// For each book of the current file, the index of the book in `books`.
    log_indexes: Vec<usize>,
    /// The number of records written since the last call of `finish`.
    written: u64,
    /// A buffer for the frame of the record that is being written.
    frame: Vec<u8>,
}

struct Book {
    topic: String,
    log: RecordedLog,
    state: State,
    records: u64,
    time_ns: u64,
}

/// The number of a book's records between two checksums of the book's state.
const CHECKSUM_INTERVAL: u64 = 1_000;

impl RecordingFolder {
    pub fn new(out: &Path) -> RecordingFolder {
        RecordingFolder {
            out: out.to_owned(),
            books: Vec::new(),
            log_indexes: Vec::new(),
            written: 0,
            frame: Vec::new(),
        }
    }

    /// Closes the recording. Returns its counts and its size on disk.
    pub fn close(self) -> Result<(RecordCounts, u64)> {
        let (mut topics, mut counts, mut bytes) = (RecordedTopics::new(), RecordCounts::default(), 0);
        for mut book in self.books {
            book.log.append_checksum(&book.state)?;
            let records = book.log.records();
            counts += book.log.counts();
            bytes += book.log.close()?;
            let entry = RecordedTopic::of(&recording::topic_dir(&self.out, &book.topic), records)?;
            topics.insert(book.topic, entry);
        }
        list::write(&self.out, &topics)?;
        Ok((counts, bytes))
    }

    pub fn topics(&self) -> usize {
        self.books.len()
    }
}

impl ImportTarget for RecordingFolder {
    fn book(&mut self, recorded: &RecordedBook) -> Result<()> {
        let existing = self.books.iter().position(|book| book.topic == recorded.topic);
        let index = match existing {
            Some(index) => index,
            None => {
                let options = recorded.scale.options();
                let state = State::of(&ReducerConfig { kind: recorded.kind.to_owned(), options })?;
                let mut log = RecordedLog::create(&self.out, &recorded.topic, None)?;
                // A recording has to begin with a complete state.
                log.append_state(&state)?;
                self.books.push(Book { topic: recorded.topic.clone(), log, state, records: 0, time_ns: 0 });
                self.books.len() - 1
            }
        };
        self.log_indexes.push(index);
        Ok(())
    }

    fn record(&mut self, book: usize, event_time_ns: u64, payload: &[u8]) -> Result<()> {
        let book = &mut self.books[self.log_indexes[book]];
        let meta = RecordMeta { event_time_ns: Some(event_time_ns), ..RecordMeta::default() };
        // `book.time_ns` becomes the record's append time. A replay publishes records in the order of their append
        // times, so append times must not decrease.
        book.time_ns = book.time_ns.max(event_time_ns);
        self.frame.clear();
        recording::encode(&meta, book.time_ns, payload, &mut self.frame)?;
        let (frame, _) = Frame::split(&self.frame).context("a record is too large for a frame")?;
        book.records += 1;
        let (topic, seq) = (&book.topic, book.records);
        let applied =
            book.state.check(&mut std::iter::once(frame)).and_then(|()| book.state.apply(seq, &frame));
        applied.with_context(|| format!("cannot write record {seq} of {topic}"))?;
        book.log.append_frame(&frame)?;
        if book.records.is_multiple_of(CHECKSUM_INTERVAL) {
            book.log.append_checksum(&book.state)?;
        }
        self.written += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<u64>> {
        self.log_indexes.clear();
        self.books.iter_mut().try_for_each(|book| book.log.sync())?;
        Ok(Some(std::mem::take(&mut self.written)))
    }
}

/// The import target that publishes to a running node, with a topic for each book.
pub struct NodeTarget<'a> {
    client: &'a Client,
    /// The memory for the history of a new topic, in bytes; 0 for the node's default.
    retention_bytes: u64,
    topics: Vec<(String, Publisher)>,
    outage: OutageReport,
    stop: StopFlag,
    errors: TextPainter,
}

impl<'a> NodeTarget<'a> {
    pub fn new(
        client: &'a Client,
        retention_bytes: u64,
        stop: StopFlag,
        errors: TextPainter,
    ) -> NodeTarget<'a> {
        NodeTarget {
            client,
            retention_bytes,
            topics: Vec::new(),
            outage: OutageReport::default(),
            stop,
            errors,
        }
    }

    /// Repeats a call as long as the node cannot be reached. Returns `None` if the command has to end.
    fn retry<T>(
        &mut self,
        topic: usize,
        mut attempt: impl FnMut(&mut Publisher) -> Result<T, PublishError>,
    ) -> Result<Option<T>> {
        let (name, publisher) = &mut self.topics[topic];
        loop {
            match attempt(publisher) {
                Ok(done) => {
                    self.outage.report_restored();
                    return Ok(Some(done));
                }
                Err(PublishError::Unknown(_)) if self.stop.is_set() => return Ok(None),
                Err(PublishError::Unknown(why)) => self.outage.report_once(&why, self.errors)?,
                Err(refused) => return Err(refused).with_context(|| format!("cannot publish to {name}")),
            }
        }
    }
}

impl ImportTarget for NodeTarget<'_> {
    fn book(&mut self, recorded: &RecordedBook) -> Result<()> {
        let topic = recorded.topic.clone();
        let reducer = ReducerConfig { kind: recorded.kind.to_owned(), options: recorded.scale.options() };
        let retention = Retention { bytes: self.retention_bytes, ..Retention::default() };
        let config = TopicConfig { reducer: Some(reducer), retention, ..node_defaults() };
        let created = self.client.create_topic(&topic, &config, true);
        created.with_context(|| format!("cannot create topic {topic}"))?;
        let publisher =
            self.client.publisher(&topic).with_context(|| format!("cannot publish to {topic}"))?;
        self.topics.push((topic, publisher));
        Ok(())
    }

    fn record(&mut self, book: usize, event_time_ns: u64, payload: &[u8]) -> Result<()> {
        if self.stop.is_set() {
            return Ok(());
        }
        let meta = RecordMeta { event_time_ns: Some(event_time_ns), ..RecordMeta::default() };
        self.retry(book, |publisher| publisher.send(Draft { meta, payload: Payload::Copied(payload) }))?;
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<u64>> {
        for topic in 0..self.topics.len() {
            if self.retry(topic, Publisher::flush)?.is_none() {
                bail!("interrupted before the node acknowledged all records");
            }
        }
        let topics = self.topics.drain(..);
        Ok(Some(topics.map(|(_, publisher)| publisher.acknowledged_records()).sum()))
    }
}

/// The configuration of a new topic for which the node chooses each setting: the value 0 stands for the node's default.
fn node_defaults() -> TopicConfig {
    TopicConfig { partitions: 0, record_bytes_max: 0, ..TopicConfig::default() }
}
