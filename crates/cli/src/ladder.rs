//! Formats an order book as a table: the best price levels of both sides, with bids on the left.

use dunlin_feed::{BidAskRelation, PriceLevel, PriceLevels, Side};
use dunlin_topic::Position;

use crate::console::TextPainter;

/// The largest width of a number in the table, in characters; `WIDTH_MIN` is the smallest. The width depends on the
/// terminal.
const WIDTH_MAX: usize = 14;
const WIDTH_MIN: usize = 6;
/// The total number of spaces between the four numbers in a line of the table.
const GAPS: usize = 5;

/// Returns the lines of a book's table: a title, a heading, and `depth` lines with price levels. If a side has fewer
/// levels, its part of the last lines is blank. `columns` is the width of the terminal; on a narrow one, numbers have
/// less room.
pub fn lines(
    topic: &str,
    at: Position,
    checksum: u64,
    book: &dyn PriceLevels,
    depth: usize,
    columns: usize,
    paint: TextPainter,
) -> Vec<String> {
    let width = (columns.saturating_sub(GAPS) / 4).clamp(WIDTH_MIN, WIDTH_MAX);
    let (bids, asks) = (book.top(Side::Bid, Some(depth)), book.top(Side::Ask, Some(depth)));
    let touch = match book.touch() {
        BidAskRelation::Crossed => paint.warning("  CROSSED"),
        BidAskRelation::Locked => paint.warning("  LOCKED"),
        BidAskRelation::Open | BidAskRelation::Apart => String::new(),
    };
    let title = format!("{}  {at}  {}{touch}", paint.strong(topic), paint.faint(&format!("{checksum:016x}")));
    let heading = format!("{:>width$} {:>width$}   {:<width$} {:<width$}", "SIZE", "BID", "ASK", "SIZE");
    let level = |nth: usize| {
        let (bid, ask) = (cells(book, bids.get(nth)), cells(book, asks.get(nth)));
        let left = format!("{:>width$} {}", bid.1, paint.good(&format!("{:>width$}", bid.0)));
        format!("{left}   {} {:<width$}", paint.bad(&format!("{:<width$}", ask.0)), ask.1)
    };
    [title, paint.faint(&heading)].into_iter().chain((0..depth).map(level)).collect()
}

/// Formats the book as one line: the best bid and ask, and the number of price levels.
pub fn one_line(topic: &str, at: Position, book: &dyn PriceLevels) -> String {
    let side = |side| match book.best(side) {
        Some(level) => {
            let (price, size) = cells(book, Some(&level));
            format!("{price} x {size}")
        }
        None => "-".to_owned(),
    };
    let touch = match book.touch() {
        BidAskRelation::Crossed => " crossed",
        BidAskRelation::Locked => " locked",
        BidAskRelation::Open | BidAskRelation::Apart => "",
    };
    let counts = (book.level_count(Side::Bid), book.level_count(Side::Ask));
    format!(
        "{topic} {at} bid {} ask {} levels {}/{}{touch}",
        side(Side::Bid),
        side(Side::Ask),
        counts.0,
        counts.1
    )
}

/// Formats the price and the size of a level as decimals; both are empty if there is no level.
fn cells(book: &dyn PriceLevels, level: Option<&PriceLevel>) -> (String, String) {
    level.map_or_else(Default::default, |level| {
        (book.scale().price_text(level.price), book.scale().size_text(level.size))
    })
}

#[cfg(test)]
mod tests {
    use dunlin_feed::{Book, BookEntry, Scale};

    use super::*;

    fn book() -> Book {
        let mut book = Book::new(Scale { price_decimals: 2, ..Scale::default() });
        let mut payload = Vec::new();
        for (side, price, size) in [(Side::Bid, 10_010, 7), (Side::Bid, 10_000, 3), (Side::Ask, 10_020, 5)] {
            BookEntry::Set { side, price, size }.encode(&mut payload);
        }
        book.apply_payload(1, &payload).unwrap();
        book
    }

    #[test]
    fn ladder_has_the_requested_lines_with_best_levels_first() {
        let lines = lines("md.X", Position { epoch: 1, seq: 9 }, 0xab, &book(), 3, 80, TextPainter::PLAIN);
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[0], "md.X  1-9  00000000000000ab");
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["7", "100.10", "100.20", "5"]);
        assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>(), ["3", "100.00"]);
        assert_eq!(lines[4].trim(), "");
    }

    #[test]
    fn book_line_shows_best_bid_best_ask_and_level_counts() {
        let line = one_line("md.X", Position { epoch: 1, seq: 9 }, &book());
        assert_eq!(line, "md.X 1-9 bid 100.10 x 7 ask 100.20 x 5 levels 2/1");
    }
}
