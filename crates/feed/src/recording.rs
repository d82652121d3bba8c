//! Recordings of exchanges become records of stateful topics: bytes in, records and defects out.
//!
//! The formats are [`Betfair`]'s stream and [`Bitstamp`]'s orders. A [`Recording`] takes the bytes of a file in pieces of any
//! size, decompressed, and cuts them into lines; nothing of the file is kept but what its books need.
//!
//! Invariants:
//! - A line that cannot be used is told with its number, and counted; the next one is read as if nothing had been.
//! - Numbers become integers exactly, or are refused: no float comes in between.
//! - What takes effect together at the exchange is one record.
//!
//! Limits: [`LINE_BYTES_MAX`]; a longer line is left out and told. [`RUNNERS_MAX`] and [`ORDERS_MAX`] books and orders.
//!
//! Opening files and taking them out of their compression is the command line's business, and so is publishing.

mod betfair;
mod bitstamp;
mod defect;
mod lines;

use std::fmt;

use crate::scale::Scale;

pub use betfair::{Betfair, BetfairTally, RUNNERS_MAX};
pub use bitstamp::{Bitstamp, BitstampTally, GRACE_MS, ORDERS_MAX, Phantom, Proof};
pub use defect::{Defect, NumberError, What};
pub use lines::LINE_BYTES_MAX;
use lines::Lines;

/// A format of recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The Betfair Exchange Stream: a JSON message a line.
    Betfair,
    /// Bitstamp's orders: comma-separated, a heading first.
    Bitstamp,
}

impl Layout {
    /// The format of a file that begins with these bytes; as much as its first line is enough, or of that the first few hundred bytes.
    pub fn of(beginning: &[u8]) -> Option<Layout> {
        let beginning = without_mark(beginning).trim_ascii_start();
        let heading = beginning.split(|byte| *byte == b'\n').next().unwrap_or_default();
        match beginning.first() {
            // Each of its messages names its kind as `op`. Lines of JSON are of many other exchanges, too.
            Some(b'{') if heading.windows(4).any(|bytes| bytes == b"\"op\"") => Some(Layout::Betfair),
            Some(b'{') => None,
            _ if heading.contains(&b',') => Some(Layout::Bitstamp),
            _ => None,
        }
    }
}

/// Text without the mark of its byte order, which some editors write before it.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Betfair => "Betfair stream",
            Layout::Bitstamp => "Bitstamp orders",
        })
    }
}

/// One book of a recording, and the topic for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The topic's name.
    pub topic: String,
    /// What people call it, where the recording says.
    pub name: Option<String>,
    /// The kind of its fold: [`BOOK`](crate::BOOK) or [`ORDERS`](crate::ORDERS).
    pub kind: &'static str,
    /// What the fold is told.
    pub scale: Scale,
}

/// What came of some bytes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Item<'a> {
    /// A book, before its first record.
    Book {
        /// Its number, an index of the recording's [`books`](Recording::books): one more than the last.
        book: usize,
        /// The topic for it.
        recorded: &'a Recorded,
    },
    /// A record to publish.
    Record {
        /// Its book's number.
        book: usize,
        /// When it took effect at the exchange.
        event_time_ns: u64,
        /// Its content.
        payload: &'a [u8],
    },
    /// Something was left out.
    Defect(Defect),
    /// An order of the opening snapshot cannot be there.
    Phantom(Phantom),
}

/// Where what came of some bytes goes.
pub type Sink<'a> = dyn FnMut(Item<'_>) + 'a;

/// How recordings are read, where there is a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingOptions {
    /// The market of files that do not name theirs; the topic is `md.bitstamp.<market>`.
    pub market: String,
    /// Whether proven phantom orders are deleted from the book, by records like any other, besides being told.
    pub evict_phantoms: bool,
}

impl Default for RecordingOptions {
    fn default() -> RecordingOptions {
        RecordingOptions { market: "btcusd".to_owned(), evict_phantoms: false }
    }
}

/// A file of any format, read in pieces.
#[derive(Debug)]
pub struct Recording {
    lines: Lines,
    reader: Reader,
}

#[derive(Debug)]
enum Reader {
    Betfair(Box<Betfair>),
    Bitstamp(Box<Bitstamp>),
}

impl Recording {
    /// A file of which nothing was read yet.
    pub fn new(layout: Layout, options: &RecordingOptions) -> Recording {
        let reader = match layout {
            Layout::Betfair => Reader::Betfair(Box::default()),
            Layout::Bitstamp => Reader::Bitstamp(Box::new(Bitstamp::new(options))),
        };
        Recording { lines: Lines::default(), reader }
    }

    /// Reads the file's next bytes.
    pub fn push(&mut self, bytes: &[u8], sink: &mut Sink<'_>) {
        let reader = &mut self.reader;
        self.lines.push(bytes, &mut |number, line| reader.line(number, line, sink));
    }

    /// The file ends here.
    pub fn end(&mut self, sink: &mut Sink<'_>) {
        let reader = &mut self.reader;
        self.lines.end(&mut |number, line| reader.line(number, line, sink));
        if let Reader::Bitstamp(bitstamp) = reader {
            bitstamp.end(sink);
        }
    }

    /// Whether there was something in the file, and nothing of the format: it is most likely of another.
    pub fn is_foreign(&self) -> bool {
        match &self.reader {
            Reader::Betfair(betfair) => betfair.is_foreign(),
            Reader::Bitstamp(bitstamp) => bitstamp.is_foreign(),
        }
    }

    /// The books that records name, in the order in which they were met. More may come with every push.
    pub fn books(&self) -> &[Recorded] {
        match &self.reader {
            Reader::Betfair(betfair) => betfair.books(),
            Reader::Bitstamp(bitstamp) => bitstamp.books(),
        }
    }

    /// What was counted: a name and a number a row, and no rows of zero but the first.
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
    fn line(&mut self, number: u64, line: Result<&[u8], What>, sink: &mut Sink<'_>) {
        match line {
            Err(what) => sink(Item::Defect(Defect { line: number, what })),
            Ok(line) => match (self, if number == 1 { without_mark(line) } else { line }) {
                (Reader::Betfair(betfair), line) => betfair.line(number, line, sink),
                (Reader::Bitstamp(bitstamp), line) => bitstamp.line(number, line, sink),
            },
        }
    }
}
