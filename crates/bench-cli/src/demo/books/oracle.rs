//! Computes the expected order books independently of Dunlin: with maps, and with a separate parser for the recordings'
//! lines.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};
use dunlin_feed::recording::RecordingFormat;
use serde_json::Value;

/// The price levels of a book: a map from side (true for bids) and price to total size. Prices and sizes are counted in
/// the recording's smallest units.
pub type SizeByPrice = BTreeMap<(bool, i64), i64>;

/// The expected order books of one recording, computed without Dunlin's order books.
pub enum ExpectedBooks {
    Betfair(BTreeMap<(String, u64), SizeByPrice>),
    Bitstamp(BitstampOrders),
}

/// The open orders of a Bitstamp recording. The map's key is the order's number; the value contains its side (true for
/// bids), price and size.
#[derive(Default)]
pub struct BitstampOrders {
    orders: HashMap<String, (bool, i64, i64)>,
    /// Rows that say that orders were deleted, and that are not applied yet. The recorder may have written such rows
    /// only because it shut down; the market then did not delete these orders.
    held: Vec<Vec<String>>,
}

impl ExpectedBooks {
    pub fn of(format: RecordingFormat) -> ExpectedBooks {
        match format {
            RecordingFormat::Betfair => ExpectedBooks::Betfair(BTreeMap::new()),
            RecordingFormat::Bitstamp => ExpectedBooks::Bitstamp(BitstampOrders::default()),
        }
    }

    pub fn apply_line(&mut self, line: &[u8]) -> Result<()> {
        match self {
            ExpectedBooks::Betfair(books) => betfair(books, line),
            ExpectedBooks::Bitstamp(bitstamp) => {
                let text = std::str::from_utf8(line).context("a row of the recording is not UTF-8")?;
                bitstamp.apply_row(text.trim_end().split(',').map(str::to_owned).collect());
                Ok(())
            }
        }
    }

    /// Removes the order `id`, which later rows of the recording show to have ended already. Dunlin's parser finds such
    /// orders. The oracle does not look for them, because it checks only prices and sizes.
    pub fn remove_phantom(&mut self, id: u64) {
        if let ExpectedBooks::Bitstamp(bitstamp) = self {
            bitstamp.orders.remove(&id.to_string());
        }
    }

    /// Ends the recording. Drops the rows that are not applied yet: the recorder wrote them because it shut down.
    pub fn end(&mut self) {
        if let ExpectedBooks::Bitstamp(bitstamp) = self {
            bitstamp.held.clear();
        }
    }

    /// Returns the topic and the price levels of each book.
    pub fn books(&self) -> Vec<(String, SizeByPrice)> {
        match self {
            ExpectedBooks::Betfair(books) => {
                let named = |((market, runner), levels): (&(String, u64), &SizeByPrice)| {
                    (format!("md.{market}.{runner}"), levels.clone())
                };
                books.iter().map(named).collect()
            }
            ExpectedBooks::Bitstamp(bitstamp) => vec![("md.bitstamp.btcusd".to_owned(), bitstamp.levels())],
        }
    }
}

fn betfair(books: &mut BTreeMap<(String, u64), SizeByPrice>, line: &[u8]) -> Result<()> {
    let message: Value = serde_json::from_slice(line).context("a line of the recording is not JSON")?;
    for change in message["mc"].as_array().into_iter().flatten() {
        let market = change["id"].as_str().context("a market of the Betfair recording has no id")?.to_owned();
        if change["img"] == Value::Bool(true) {
            books.iter_mut().filter(|((id, _), _)| *id == market).for_each(|(_, levels)| levels.clear());
        }
        for runner in change["rc"].as_array().into_iter().flatten() {
            let id = runner["id"].as_u64().context("a runner of the Betfair recording has no id")?;
            let levels = books.entry((market.clone(), id)).or_default();
            for (field, bid) in [("atb", true), ("atl", false)] {
                for pair in runner[field].as_array().into_iter().flatten() {
                    let (price, size) = (units(&pair[0], 100.0)?, units(&pair[1], 100.0)?);
                    match size {
                        0 => levels.remove(&(bid, price)),
                        size => levels.insert((bid, price), size),
                    };
                }
            }
        }
    }
    Ok(())
}

/// Converts a decimal number to a number of smallest units. `per_one` is the number of smallest units that equal 1.
/// Rounding gives the exact result, because the numbers have few digits.
fn units(value: &Value, per_one: f64) -> Result<i64> {
    Ok((value.as_f64().context("a price level of the recording is not two numbers")? * per_one).round()
        as i64)
}

impl BitstampOrders {
    /// Applies a row of a Bitstamp recording. Its columns are id, local time, exchange time, price, volume, action and
    /// direction.
    fn apply_row(&mut self, row: Vec<String>) {
        let [_, local, exchange, _, _, action, _] = row.as_slice() else { return };
        let closing = action == "deleted" && local == exchange;
        if closing && self.held.last().is_none_or(|held| held[2] == *exchange) {
            self.held.push(row);
            return;
        }
        for held in std::mem::take(&mut self.held) {
            self.apply_event(&held);
        }
        self.apply_event(&row);
    }

    fn apply_event(&mut self, row: &[String]) {
        let number =
            |text: &str, per_one: f64| text.parse::<f64>().map(|value| (value * per_one).round() as i64);
        let (Ok(price), Ok(size)) = (number(&row[3], 10.0), number(&row[4], 1e8)) else { return };
        let id = row[0].clone();
        match row[5].as_str() {
            "created" => {
                self.orders.entry(id).or_insert((row[6] == "bid", price, size));
            }
            "changed" => {
                if let Some(order) = self.orders.get_mut(&id) {
                    // After a trade, the row contains the trade's price and the order's remaining size. Only a row with
                    // an unchanged size contains a new price of the order.
                    if order.2 == size { order.1 = price } else { order.2 = size }
                }
            }
            "deleted" => drop(self.orders.remove(&id)),
            _ => {}
        }
    }

    fn levels(&self) -> SizeByPrice {
        let mut levels = SizeByPrice::new();
        for (bid, price, size) in self.orders.values() {
            // A market order has no price limit, so it never rests in the book. The recording gives each market order
            // an extreme price, by which this code detects it.
            let market = if *bid { *price >= 9_999_999_990 } else { *price == 0 };
            if !market && *size > 0 {
                *levels.entry((*bid, *price)).or_default() += size;
            }
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_size_or_an_empty_market_snapshot_removes_price_levels() {
        let mut oracle = ExpectedBooks::of(RecordingFormat::Betfair);
        let lines = [
            r#"{"op":"mcm","pt":1,"mc":[{"id":"1.2","rc":[{"id":7,"atb":[[1.01,2.5],[1.02,3]]}]}]}"#,
            r#"{"op":"mcm","pt":2,"mc":[{"id":"1.2","rc":[{"id":7,"atb":[[1.02,0]],"atl":[[2,1]]}]}]}"#,
        ];
        lines.iter().for_each(|line| oracle.apply_line(line.as_bytes()).unwrap());
        let books = oracle.books();
        assert_eq!(books[0].0, "md.1.2.7");
        assert_eq!(books[0].1, SizeByPrice::from([((true, 101), 250), ((false, 200), 100)]));
        oracle.apply_line(br#"{"op":"mcm","pt":3,"mc":[{"id":"1.2","img":true,"rc":[]}]}"#).unwrap();
        assert!(oracle.books()[0].1.is_empty());
    }

    #[test]
    fn later_changes_of_a_removed_order_do_not_affect_the_book() {
        let mut oracle = ExpectedBooks::of(RecordingFormat::Bitstamp);
        let line = |oracle: &mut ExpectedBooks, row: &str| oracle.apply_line(row.as_bytes()).unwrap();
        line(&mut oracle, "9,1,2,100.5,0.5,created,bid");
        line(&mut oracle, "8,1,2,100.5,0.25,created,bid");
        oracle.remove_phantom(9);
        line(&mut oracle, "9,2,3,100.5,0.1,changed,bid");
        assert_eq!(oracle.books()[0].1, SizeByPrice::from([((true, 1005), 25_000_000)]));
    }

    #[test]
    fn deletions_at_the_end_of_a_recording_do_not_change_the_book() {
        let mut oracle = ExpectedBooks::of(RecordingFormat::Bitstamp);
        for row in
            ["9,1,2,100.5,0.5,created,bid", "8,1,2,100.5,0.25,created,bid", "9,3,3,100.5,0.5,deleted,bid"]
        {
            oracle.apply_line(row.as_bytes()).unwrap();
        }
        oracle.end();
        assert_eq!(oracle.books()[0].1, SizeByPrice::from([((true, 1005), 75_000_000)]));
    }
}
