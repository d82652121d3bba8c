//! Reads recordings of the Betfair Exchange Stream. Only market change messages are used; other messages are counted.
//!
//! Each runner (a horse or team) of a market has an order book. The field `atb` (available to back) has the bids, and
//! `atl` (available to lay) has the asks. Both are lists of pairs: a price (the odds) and the new size at this price;
//! size 0 removes the level. Prices and sizes have two decimals. A change with `img` is an image, which describes the
//! whole market: it replaces every book of the market, with one record for each book. The publish time `pt` is the
//! event time.
//!
//! Invariants: each message gives at most one record for each book, even if the message has several changes of the same
//! runner. A removal of a level that does not exist is counted, but gives no entry in a record.
//!
//! Traded volumes and starting prices are not read. Lists of the best offers (`batb`, `batl`) are not read either,
//! because they do not describe a whole book. Runner changes that contain only such lists are counted.

mod message;
mod runner;

use std::collections::{BTreeMap, HashMap};

use dunlin_topic::Subject;

use super::defect::{Defect, DefectKind, NumberError};
use super::{ItemSink, RecordedBook, RecordingItem};
use crate::decimal;
use crate::kind;
use crate::scale::{Scale, UNITS_MAX};
use crate::side::Side;
use message::{BetfairMessage, Definition, PriceSizePair, RunnerChange};
use runner::BetfairRunner;

/// Maximum number of books in one recording.
pub const RUNNERS_MAX: usize = 100_000;

const DECIMALS: u8 = 2;
const MS: u64 = 1_000_000;

/// Reads a recording of the Betfair Exchange Stream.
#[derive(Debug, Default)]
pub struct BetfairReader {
    books: Vec<RecordedBook>,
    books_reported: usize,
    runners: Vec<BetfairRunner>,
    /// The number of each book, by market, then by the runner's id and handicap (in hundredths). When an image replaces
    /// the books of a market, its records are in this order.
    markets: HashMap<String, BTreeMap<(u64, i64), usize>>,
    /// The numbers of the books that the current message changes.
    changed: Vec<usize>,
    tally: BetfairTally,
}

/// Counters of a Betfair recording: messages, changes and records, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BetfairTally {
    /// Number of market change messages.
    pub messages: u64,
    /// Number of messages of other kinds, which were skipped.
    pub other_messages: u64,
    /// Number of runner changes, including those that contain only traded volumes.
    pub runner_changes: u64,
    /// Number of runner changes that have lists of the best offers (`batb`, `batl`) but no changes of the whole book
    /// (`atb`, `atl`).
    pub best_offers_only: u64,
    /// Number of levels that were set.
    pub sets: u64,
    /// Number of removals of levels, including removals of levels that did not exist.
    pub removes: u64,
    /// Number of removals of levels that did not exist. They are part of `removes`.
    pub absent_removes: u64,
    /// Number of images, which are market changes that describe a whole market.
    pub images: u64,
    /// Number of market changes that the stream marks as merged from several changes.
    pub conflated: u64,
    /// Number of messages whose publish time is earlier than that of the previous message.
    pub times_back: u64,
    /// Number of books.
    pub runners: u64,
    /// Number of records.
    pub records: u64,
    /// Number of lines, or parts of lines, that were skipped because they are invalid.
    pub defects: u64,
    last_time_ms: u64,
}

impl BetfairTally {
    pub(super) fn rows(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("market change messages", self.messages),
            ("other messages", self.other_messages),
            ("runner changes", self.runner_changes),
            ("runner changes with best offers only", self.best_offers_only),
            ("levels set", self.sets),
            ("levels removed", self.removes),
            ("removals of absent levels", self.absent_removes),
            ("images", self.images),
            ("conflated market changes", self.conflated),
            ("times going back", self.times_back),
            ("books", self.runners),
            ("records", self.records),
            ("defects", self.defects),
        ]
    }
}

impl BetfairReader {
    /// Whether the file has content, but no line of it is a market change message.
    pub fn is_foreign(&self) -> bool {
        self.tally.messages == 0 && self.tally.other_messages + self.tally.defects > 0
    }

    /// Reads the line with this number. The line is passed without its line end.
    pub fn read_line(&mut self, line_number: u64, line: &[u8], sink: &mut ItemSink<'_>) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let mut defect = |tally: &mut BetfairTally, kind| {
            tally.defects += 1;
            sink(RecordingItem::Defect(Defect { line: line_number, kind }));
        };
        let message: BetfairMessage<'_> = match serde_json::from_slice(line) {
            Ok(message) => message,
            Err(error) => {
                return defect(&mut self.tally, DefectKind::NotAMessage { why: error_text(&error) });
            }
        };
        if message.op.as_deref() != Some("mcm") {
            self.tally.other_messages += 1;
            return;
        }
        let Some(time_ms) = message.pt else { return defect(&mut self.tally, DefectKind::NoTime) };
        self.tally.messages += 1;
        self.tally.times_back += u64::from(time_ms < self.tally.last_time_ms);
        self.tally.last_time_ms = time_ms;
        for market in message.mc.into_iter().flatten() {
            if let Err(error) = Subject::parse(&topic(&market.id, "0")) {
                let (id, why) = (market.id.into_owned(), error.to_string());
                defect(&mut self.tally, DefectKind::BadMarket { id, why });
                continue;
            }
            self.tally.conflated += u64::from(market.con == Some(true));
            if market.img == Some(true) {
                self.start_image(&market.id);
            }
            for definition in market.definition.into_iter().flat_map(|market| market.runners) {
                if let Err(kind) = self.apply_definition(&market.id, definition) {
                    defect(&mut self.tally, kind);
                }
            }
            for change in market.rc.into_iter().flatten() {
                self.tally.runner_changes += 1;
                if let Err(kind) = self.change(&market.id, &change) {
                    defect(&mut self.tally, kind);
                }
            }
        }
        self.emit_records(time_ms.saturating_mul(MS), sink);
    }

    /// The books so far, in the order in which the runners were first defined or changed.
    pub fn books(&self) -> &[RecordedBook] {
        &self.books
    }

    /// The counters so far.
    pub fn tally(&self) -> &BetfairTally {
        &self.tally
    }

    /// Begins an image, which describes the whole market: clears all books of the market.
    fn start_image(&mut self, market: &str) {
        self.tally.images += 1;
        for &book_number in self.markets.get(market).into_iter().flat_map(BTreeMap::values) {
            let runner = &mut self.runners[book_number];
            if !runner.is_changed() {
                self.changed.push(book_number);
            }
            runner.clear();
        }
    }

    fn apply_definition(&mut self, market: &str, definition: Definition<'_>) -> Result<(), DefectKind> {
        let book_number = self.book_number(market, definition.id, definition.hc.map(|hc| hc.get()))?;
        if let Some(name) = definition.name {
            self.books[book_number].name = Some(name.into_owned());
        }
        Ok(())
    }

    /// Applies all prices of a change to the runner's book. If one of the prices or sizes is invalid, applies none of
    /// them.
    fn change(&mut self, market: &str, change: &RunnerChange<'_>) -> Result<(), DefectKind> {
        let book_number = self.book_number(market, change.id, change.hc.map(|hc| hc.get()))?;
        let sides = [(Side::Bid, &change.atb), (Side::Ask, &change.atl)];
        if sides.iter().all(|(_, pairs)| pairs.is_none()) {
            self.tally.best_offers_only += u64::from(change.batb.is_some() || change.batl.is_some());
            return Ok(());
        }
        let pairs =
            sides.into_iter().flat_map(|(side, pairs)| pairs.iter().flatten().map(move |pair| (side, pair)));
        let levels: Vec<(Side, i64, i64)> = pairs
            .map(|(side, pair)| level(change.id, pair).map(|(price, size)| (side, price, size)))
            .collect::<Result<_, _>>()?;
        let runner = &mut self.runners[book_number];
        let was_changed = runner.is_changed();
        for (side, price, size) in levels {
            if size > 0 {
                self.tally.sets += 1;
                runner.set(side, price, size);
            } else {
                self.tally.removes += 1;
                self.tally.absent_removes += u64::from(!runner.remove(side, price));
            }
        }
        if runner.is_changed() && !was_changed {
            self.changed.push(book_number);
        }
        Ok(())
    }

    /// Returns the number of a runner's book. Creates the book if it does not exist.
    fn book_number(&mut self, market: &str, id: u64, handicap: Option<&str>) -> Result<usize, DefectKind> {
        let bad = |error| DefectKind::BadLevel { runner: id, field: "hc", error };
        let handicap = handicap.map_or(Ok(0), |text| decimal::read(text.as_bytes(), DECIMALS));
        let handicap = handicap.map_err(|error| bad(error.into()))?;
        let market_runners = match self.markets.get_mut(market) {
            Some(runners) => runners,
            None => self.markets.entry(market.to_owned()).or_default(),
        };
        if let Some(book_number) = market_runners.get(&(id, handicap)) {
            return Ok(*book_number);
        }
        if self.runners.len() >= RUNNERS_MAX {
            return Err(DefectKind::TooManyRunners { runner: id });
        }
        let book_number = self.runners.len();
        market_runners.insert((id, handicap), book_number);
        self.runners.push(BetfairRunner::default());
        let token = if handicap == 0 { id.to_string() } else { format!("{id}_{handicap}") };
        let scale =
            Scale { price_decimals: DECIMALS, size_decimals: DECIMALS, price_min: 1, ..Scale::default() };
        self.books.push(RecordedBook { topic: topic(market, &token), name: None, kind: kind::BOOK, scale });
        self.tally.runners += 1;
        Ok(book_number)
    }

    fn emit_records(&mut self, event_time_ns: u64, sink: &mut ItemSink<'_>) {
        for (book, recorded) in self.books.iter().enumerate().skip(self.books_reported) {
            sink(RecordingItem::Book { book, recorded });
        }
        self.books_reported = self.books.len();
        for book in self.changed.drain(..) {
            let payload = self.runners[book].payload();
            self.tally.records += 1;
            sink(RecordingItem::Record { book, event_time_ns, payload });
            self.runners[book].end_message();
        }
    }
}

fn topic(market: &str, runner: &str) -> String {
    format!("md.{market}.{runner}")
}

fn level(runner: u64, pair: &PriceSizePair<'_>) -> Result<(i64, i64), DefectKind> {
    let [price, size] = pair.0;
    let parse = |field, text: &str, min, wanted| {
        let value = decimal::read(text.as_bytes(), DECIMALS);
        let error = match value {
            Ok(value) if (min..=UNITS_MAX).contains(&value) => return Ok(value),
            Ok(value) => NumberError::OutOfRange { value, wanted },
            Err(error) => error.into(),
        };
        Err(DefectKind::BadLevel { runner, field, error })
    };
    Ok((parse("price", price.get(), 1, "a price")?, parse("size", size.get(), 0, "a size")?))
}

/// Returns the text of a parser's error without the line number, which is always 1, because each line is parsed
/// separately.
fn error_text(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}
