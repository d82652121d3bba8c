//! Reads recordings of Bitstamp's orders, in the format of the package ob-analytics: a full order book, followed by the
//! events of the channel `live_orders`. Each row of comma-separated values is one event. The first line, the heading,
//! names the columns, which may be in any order.
//!
//! A recording opens with one `created` row for each existing order, all with the same times. From these rows, one
//! record is made, which clears the book and adds the orders. A recording may close with `deleted` rows that do not
//! come from the exchange: the recording program has added them to empty the book. In such rows, the local time equals
//! the exchange time. They are counted, but do not become records. The event time of a record is the exchange time.
//!
//! The meaning of the rows was inferred from a recording:
//! - An order that matches others is `created` before it matches. The book is therefore crossed for a moment.
//! - The price of a `changed` or `deleted` row is the price of the trade, not of the order. The order keeps its own
//!   price. Only a `changed` row that leaves the size unchanged gives the order a new price. A `deleted` row with
//!   volume 0 means that the order was filled. With another volume, the order was withdrawn.
//! - A bid at 999,999,999 or an ask at 0 is a market order. A market order never rests, and is therefore not
//!   part of the book.
//!
//! Module [`phantoms`] finds orders in the opening book that no longer existed at the exchange.

mod open_orders;
mod phantoms;
mod row;
mod tally;

use super::defect::{Defect, DefectKind};
use super::{ItemSink, RecordedBook, RecordingItem, RecordingOptions};
use crate::kind;
use crate::orders::OrderEntry;
use crate::scale::Scale;
use crate::side::Side;
use open_orders::OpenOrders;
pub use phantoms::{GRACE_MS, Phantom, PhantomProof};
use row::{BitstampColumns, BitstampRow, RowAction};
pub use tally::BitstampTally;

/// Maximum number of open orders in one recording.
pub const ORDERS_MAX: usize = 1 << 22;

/// Maximum number of rows that are held back because they may be closing rows, with which the recording program empties
/// the book.
const CLOSING_ROWS_MAX: usize = 1 << 20;
/// When the payload of a record of the opening book reaches this number of bytes, the record ends, and another record
/// contains further orders.
const OPENING_PAYLOAD_BYTES: usize = 2 << 20;
const MS: u64 = 1_000_000;

/// Reads a recording of Bitstamp's orders.
#[derive(Debug)]
pub struct BitstampReader {
    book: [RecordedBook; 1],
    columns: Heading,
    /// The rows of the opening book so far, each with its line number. `None` after the first row that does not belong
    /// to the opening book.
    opening: Option<Vec<(u64, BitstampRow)>>,
    open_orders: OpenOrders,
    evict_phantoms: bool,
    /// Rows that are held back, each with its line number, because they may be closing rows. If a row of another kind
    /// follows, the rows in this list are not closing rows.
    closing: Vec<(u64, BitstampRow)>,
    payload: Vec<u8>,
    last_time_ms: u64,
    tally: BitstampTally,
}

#[derive(Debug)]
enum Heading {
    Awaited,
    Read(BitstampColumns),
    /// The heading is invalid, so that no row can be read.
    Unusable,
}

impl BitstampReader {
    pub(super) fn new(options: &RecordingOptions) -> BitstampReader {
        let scale = Scale {
            price_decimals: row::PRICE_DECIMALS,
            size_decimals: row::SIZE_DECIMALS,
            price_min: 0,
            ..Scale::default()
        };
        let topic = format!("md.bitstamp.{}", options.market);
        BitstampReader {
            book: [RecordedBook { topic, name: Some(options.market.clone()), kind: kind::ORDERS, scale }],
            columns: Heading::Awaited,
            opening: Some(Vec::new()),
            open_orders: OpenOrders::default(),
            evict_phantoms: options.evict_phantoms,
            closing: Vec::new(),
            payload: Vec::new(),
            last_time_ms: 0,
            tally: BitstampTally::default(),
        }
    }

    /// Whether the first line is not a valid heading of a Bitstamp recording.
    pub fn is_foreign(&self) -> bool {
        matches!(self.columns, Heading::Unusable)
    }

    /// Reads the line with this number. The line is passed without its line end.
    pub fn read_line(&mut self, line_number: u64, line: &[u8], sink: &mut ItemSink<'_>) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let row = match &self.columns {
            Heading::Read(columns) => columns.read(line),
            Heading::Unusable => {
                self.tally.unreadable += 1;
                return;
            }
            Heading::Awaited => {
                match BitstampColumns::of(line) {
                    Ok(columns) => {
                        self.columns = Heading::Read(columns);
                        sink(RecordingItem::Book { book: 0, recorded: &self.book[0] });
                    }
                    Err(kind) => {
                        self.columns = Heading::Unusable;
                        self.report_defect(line_number, kind, sink);
                    }
                }
                return;
            }
        };
        match row {
            Ok(row) => self.hold_back_or_apply(line_number, row, sink),
            Err(kind) => self.report_defect(line_number, kind, sink),
        }
    }

    /// Ends the recording, and passes the remaining items to `sink`.
    pub fn end(&mut self, sink: &mut ItemSink<'_>) {
        self.emit_opening(sink);
        self.tally.closing += self.closing.len() as u64;
        self.closing.clear();
    }

    /// The books of the recording: always exactly one.
    pub fn books(&self) -> &[RecordedBook] {
        &self.book
    }

    /// The counters so far.
    pub fn tally(&self) -> &BitstampTally {
        &self.tally
    }

    /// Applies a row to the book, or holds it back if it may belong to the opening book, or to the closing rows that
    /// empty the book.
    fn hold_back_or_apply(&mut self, line_number: u64, row: BitstampRow, sink: &mut ItemSink<'_>) {
        if let Some(rows) = &mut self.opening {
            let same =
                |first: &BitstampRow| (first.local_ms, first.exchange_ms) == (row.local_ms, row.exchange_ms);
            if row.action == RowAction::Created && rows.first().is_none_or(|(_, first)| same(first)) {
                rows.push((line_number, row));
                return;
            }
            self.emit_opening(sink);
        }
        let closing = row.action == RowAction::Deleted && row.local_ms == row.exchange_ms;
        let same = self.closing.last().is_none_or(|(_, held)| held.exchange_ms == row.exchange_ms);
        if closing && same && self.closing.len() < CLOSING_ROWS_MAX {
            self.closing.push((line_number, row));
            return;
        }
        for (line_number, held) in std::mem::take(&mut self.closing) {
            self.apply_row(line_number, &held, sink);
        }
        self.apply_row(line_number, &row, sink);
    }

    /// Ends the opening book: passes its orders to `sink` in one record, or in several records if there are very many
    /// orders.
    fn emit_opening(&mut self, sink: &mut ItemSink<'_>) {
        let Some(rows) = self.opening.take().filter(|rows| !rows.is_empty()) else { return };
        let time_ns = rows[0].1.exchange_ms.saturating_mul(MS);
        let mut payload = Vec::new();
        for side in Side::BOTH {
            OrderEntry::Clear { side }.encode(&mut payload);
        }
        for (line_number, row) in rows {
            match self.open_orders.add_opening_order(&row, &mut self.tally) {
                Ok(Some(entry)) => entry.encode(&mut payload),
                Ok(None) => {}
                Err(kind) => self.report_defect(line_number, kind, sink),
            }
            if payload.len() >= OPENING_PAYLOAD_BYTES {
                self.tally.records += 1;
                sink(RecordingItem::Record { book: 0, event_time_ns: time_ns, payload: &payload });
                payload.clear();
            }
        }
        if !payload.is_empty() {
            self.tally.records += 1;
            sink(RecordingItem::Record { book: 0, event_time_ns: time_ns, payload: &payload });
        }
    }

    fn apply_row(&mut self, line_number: u64, row: &BitstampRow, sink: &mut ItemSink<'_>) {
        let time_ns = row.exchange_ms.saturating_mul(MS);
        self.tally.times_back += u64::from(row.exchange_ms < self.last_time_ms);
        self.last_time_ms = row.exchange_ms;
        self.report_phantoms(line_number, row.exchange_ms, sink);
        match self.open_orders.apply_row(row, &mut self.tally) {
            Ok(Some(entry)) => self.emit_entry(time_ns, &entry, sink),
            Ok(None) => {}
            Err(kind) => self.report_defect(line_number, kind, sink),
        }
    }

    /// Reports the phantoms that are proven at the exchange time `now_ms`. If `evict_phantoms` is set, also deletes
    /// them from the book.
    fn report_phantoms(&mut self, line: u64, now_ms: u64, sink: &mut ItemSink<'_>) {
        for phantom in self.open_orders.take_proven_phantoms(line, now_ms) {
            self.tally.phantoms += 1;
            let id = phantom.id;
            sink(RecordingItem::Phantom(phantom));
            if self.evict_phantoms {
                self.open_orders.evict(id);
                self.tally.evicted += 1;
                self.emit_entry(now_ms.saturating_mul(MS), &OrderEntry::Delete { id }, sink);
            }
        }
    }

    fn emit_entry(&mut self, event_time_ns: u64, entry: &OrderEntry, sink: &mut ItemSink<'_>) {
        self.payload.clear();
        entry.encode(&mut self.payload);
        self.tally.records += 1;
        sink(RecordingItem::Record { book: 0, event_time_ns, payload: &self.payload });
    }

    fn report_defect(&mut self, line: u64, kind: DefectKind, sink: &mut ItemSink<'_>) {
        self.tally.defects += 1;
        sink(RecordingItem::Defect(Defect { line, kind }));
    }
}
