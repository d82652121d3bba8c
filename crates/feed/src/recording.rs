//! Converts recordings of an exchange's data into records of state topics.
//!
//! The supported formats are recordings of Betfair's stream ([`BetfairReader`]) and of Bitstamp's orders
//! ([`BitstampReader`]). A [`Recording`] takes the decompressed bytes of a file in pieces of any size, cuts them into
//! lines, and keeps only the data that the order books need.
//!
//! Invariants:
//! - An invalid line is counted, and reported with its line number; the next line is read as usual.
//! - A decimal number is converted to an integer exactly, without floats, or refused.
//! - Changes of a book that take effect together at the exchange become one record.
//!
//! A line has at most [`LINE_BYTES_MAX`] bytes; longer lines are skipped and reported. A recording has at most
//! [`RUNNERS_MAX`] books and [`ORDERS_MAX`] orders.
//!
//! The caller opens and decompresses the files, and publishes the records.

mod betfair;
mod bitstamp;
mod defect;
mod lines;

use std::fmt;

use crate::scale::Scale;

pub use betfair::{BetfairReader, BetfairTally, RUNNERS_MAX};
pub use bitstamp::{BitstampReader, BitstampTally, GRACE_MS, ORDERS_MAX, Phantom, PhantomProof};
pub use defect::{Defect, DefectKind, NumberError};
pub use lines::LINE_BYTES_MAX;
use lines::Lines;

/// The file format of an exchange's recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingFormat {
    /// The Betfair Exchange Stream: a JSON message on each line.
    Betfair,
    /// Bitstamp's orders: rows of comma-separated values under a heading.
    Bitstamp,
}

impl RecordingFormat {
    /// Detects the format from the beginning of a file. The first line or a few hundred bytes are enough.
    pub fn of(beginning: &[u8]) -> Option<RecordingFormat> {
        let beginning = without_byte_order_mark(beginning).trim_ascii_start();
        let heading = beginning.split(|byte| *byte == b'\n').next().unwrap_or_default();
        match beginning.first() {
            // In Betfair's stream, each message has the field `op`. The format is recognised only if this field is
            // present, because recordings of many other exchanges also consist of lines of JSON.
            Some(b'{') if heading.windows(4).any(|bytes| bytes == b"\"op\"") => {
                Some(RecordingFormat::Betfair)
            }
            Some(b'{') => None,
            _ if heading.contains(&b',') => Some(RecordingFormat::Bitstamp),
            _ => None,
        }
    }
}

/// Removes the byte order mark that some editors write at the beginning of a file.
fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

impl fmt::Display for RecordingFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecordingFormat::Betfair => "Betfair stream",
            RecordingFormat::Bitstamp => "Bitstamp orders",
        })
    }
}

/// An order book in a recording: its topic, and the kind and the scale of its reducer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedBook {
    /// Name of the topic.
    pub topic: String,
    /// Display name, if the recording has one.
    pub name: Option<String>,
    /// Kind of the reducer: [`BOOK`](crate::BOOK) or [`ORDERS`](crate::ORDERS).
    pub kind: &'static str,
    /// Scale of the reducer.
    pub scale: Scale,
}

/// One item of a recording: a new book, a record, an invalid part that was skipped, or a phantom. A phantom is an order
/// that a recorded book contains although the exchange had already removed it.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordingItem<'a> {
    /// A book appears for the first time. This item precedes all records of the book.
    Book {
        /// Number of the book: its index in the [`books`](Recording::books) of the recording.
        book: usize,
        /// Topic, name, kind and scale of the book.
        recorded: &'a RecordedBook,
    },
    /// A record to publish to the topic of a book.
    Record {
        /// Number of the book.
        book: usize,
        /// Event time in ns since the Unix epoch: when the record took effect at the exchange.
        event_time_ns: u64,
        /// Payload of the record.
        payload: &'a [u8],
    },
    /// A part of the recording is invalid and was skipped.
    Defect(Defect),
    /// An order of the opening book, which is the book at the beginning of the recording, is a phantom: according to
    /// later lines, the exchange had already removed it.
    Phantom(Phantom),
}

/// A function that receives the items of a recording one after the other.
pub type ItemSink<'a> = dyn FnMut(RecordingItem<'_>) + 'a;

/// Options for reading an exchange's recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingOptions {
    /// Name of the market, for a file that does not state its market. The topic of such a file is
    /// `md.bitstamp.<market>`.
    pub market: String,
    /// Whether a phantom order is deleted from the book, by an additional record, once it is proven to be a phantom.
    /// Phantoms are reported in any case.
    pub evict_phantoms: bool,
}

impl Default for RecordingOptions {
    fn default() -> RecordingOptions {
        RecordingOptions { market: "btcusd".to_owned(), evict_phantoms: false }
    }
}

/// Reads an exchange's recording in any supported format. The caller passes the file in pieces of any size.
#[derive(Debug)]
pub struct Recording {
    lines: Lines,
    reader: Reader,
}

#[derive(Debug)]
enum Reader {
    Betfair(Box<BetfairReader>),
    Bitstamp(Box<BitstampReader>),
}

impl Recording {
    /// Creates a reader for a file of this format.
    pub fn new(format: RecordingFormat, options: &RecordingOptions) -> Recording {
        let reader = match format {
            RecordingFormat::Betfair => Reader::Betfair(Box::default()),
            RecordingFormat::Bitstamp => Reader::Bitstamp(Box::new(BitstampReader::new(options))),
        };
        Recording { lines: Lines::default(), reader }
    }

    /// Reads the next bytes of the file, and passes the items in them to `sink`.
    pub fn push(&mut self, bytes: &[u8], sink: &mut ItemSink<'_>) {
        let reader = &mut self.reader;
        self.lines.push(bytes, &mut |line_number, line| reader.read_line(line_number, line, sink));
    }

    /// Must be called at the end of the file: passes the remaining items to `sink`.
    pub fn end(&mut self, sink: &mut ItemSink<'_>) {
        let reader = &mut self.reader;
        self.lines.end(&mut |line_number, line| reader.read_line(line_number, line, sink));
        if let Reader::Bitstamp(bitstamp) = reader {
            bitstamp.end(sink);
        }
    }

    /// Whether the file has content, but nothing in it has the expected format. If so, the file probably has another
    /// format.
    pub fn is_foreign(&self) -> bool {
        match &self.reader {
            Reader::Betfair(betfair) => betfair.is_foreign(),
            Reader::Bitstamp(bitstamp) => bitstamp.is_foreign(),
        }
    }

    /// The books in the order in which they appeared. Each call of `push` may add books.
    pub fn books(&self) -> &[RecordedBook] {
        match &self.reader {
            Reader::Betfair(betfair) => betfair.books(),
            Reader::Bitstamp(bitstamp) => bitstamp.books(),
        }
    }

    /// The counters of the recording, each with its name. Counters that are zero are left out, except for the number of
    /// lines.
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        let mut rows = match &self.reader {
            Reader::Betfair(betfair) => betfair.tally().rows(),
            Reader::Bitstamp(bitstamp) => bitstamp.tally().rows(),
        };
        rows.insert(0, ("lines", self.lines.count()));
        rows.retain(|(name, count)| *name == "lines" || *count > 0);
        rows
    }
}

impl Reader {
    fn read_line(&mut self, line_number: u64, line: Result<&[u8], DefectKind>, sink: &mut ItemSink<'_>) {
        match line {
            Err(kind) => sink(RecordingItem::Defect(Defect { line: line_number, kind })),
            Ok(line) => match (self, if line_number == 1 { without_byte_order_mark(line) } else { line }) {
                (Reader::Betfair(betfair), line) => betfair.read_line(line_number, line, sink),
                (Reader::Bitstamp(bitstamp), line) => bitstamp.read_line(line_number, line, sink),
            },
        }
    }
}
