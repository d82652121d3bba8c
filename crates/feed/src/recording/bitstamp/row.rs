//! Parses the rows of a Bitstamp recording, and the heading, which determines the positions of the columns.
//!
//! Rows are simply split at commas, because their fields are not quoted. A row with a quote in a field is refused. The
//! crate `csv` would reach only three quarters of this parser's speed.

use crate::decimal::{self, DecimalError};
use crate::recording::defect::{DefectKind, NumberError};
use crate::scale::UNITS_MAX;
use crate::side::Side;

pub(super) const PRICE_DECIMALS: u8 = 1;
pub(super) const SIZE_DECIMALS: u8 = 8;

/// The price that the exchange writes for a market order to buy. For a market order to sell, it writes the price 0. A
/// bid with price 0, in contrast, is a limit order below five cents, whose price was rounded.
const MARKET_BUY: i64 = 9_999_999_990;
/// Maximum number of columns in a heading.
const COLUMNS_MAX: usize = 32;

const NAMES: [&str; 7] = ["id", "timestamp", "exchange_timestamp", "price", "volume", "action", "direction"];

/// The action of a row in a Bitstamp recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowAction {
    Created,
    Changed,
    Deleted,
}

/// One row of a Bitstamp recording: an event of one order.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitstampRow {
    pub id: u64,
    pub local_ms: u64,
    pub exchange_ms: u64,
    pub price: i64,
    pub size: i64,
    pub action: RowAction,
    pub side: Side,
}

impl BitstampRow {
    pub(super) fn is_market_order(&self) -> bool {
        match self.side {
            Side::Bid => self.price == MARKET_BUY,
            Side::Ask => self.price == 0,
        }
    }
}

/// The position of each column of [`NAMES`] in the rows, and the total number of columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitstampColumns {
    at: [usize; NAMES.len()],
    count: usize,
}

impl BitstampColumns {
    /// Parses the heading.
    pub(super) fn of(line: &[u8]) -> Result<BitstampColumns, DefectKind> {
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        let found: Vec<&[u8]> =
            line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).take(COLUMNS_MAX).collect();
        let position = |name: &str| found.iter().position(|column| *column == name.as_bytes());
        let missing: Vec<&'static str> = NAMES.into_iter().filter(|name| position(name).is_none()).collect();
        if !missing.is_empty() {
            return Err(DefectKind::MissingColumns { missing });
        }
        Ok(BitstampColumns { at: NAMES.map(|name| position(name).unwrap_or(0)), count: found.len() })
    }

    pub(super) fn read(&self, line: &[u8]) -> Result<BitstampRow, DefectKind> {
        let mut all = [&[][..]; COLUMNS_MAX];
        let mut found = 0;
        for field in line.split(|byte| *byte == b',') {
            if let Some(slot) = all.get_mut(found) {
                *slot = field;
            }
            found += 1;
        }
        if found != self.count {
            return Err(DefectKind::Columns { found, wanted: self.count });
        }
        let [id, local, exchange, price, volume, action, direction] = self.at.map(|at| all[at]);
        Ok(BitstampRow {
            id: whole("id", id)?,
            local_ms: whole("timestamp", local)?,
            exchange_ms: whole("exchange_timestamp", exchange)?,
            price: number("price", price, PRICE_DECIMALS)?,
            size: number("volume", volume, SIZE_DECIMALS)?,
            action: read_action(action)?,
            side: read_direction(direction)?,
        })
    }
}

fn whole(column: &'static str, field: &[u8]) -> Result<u64, DefectKind> {
    let digits = field.iter().try_fold(0_u64, |sum, byte| {
        byte.is_ascii_digit().then(|| sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')))?
    });
    digits.filter(|_| !field.is_empty()).ok_or_else(|| {
        let error = DecimalError::NotANumber { text: text(field) }.into();
        DefectKind::BadField { column, error }
    })
}

fn number(column: &'static str, field: &[u8], decimals: u8) -> Result<i64, DefectKind> {
    let error = match decimal::read(field, decimals) {
        Ok(value) if (0..=UNITS_MAX).contains(&value) => return Ok(value),
        Ok(value) => NumberError::OutOfRange { value, wanted: "between 0 and 2^53" },
        Err(error) => error.into(),
    };
    Err(DefectKind::BadField { column, error })
}

fn read_action(field: &[u8]) -> Result<RowAction, DefectKind> {
    match field {
        b"created" => Ok(RowAction::Created),
        b"changed" => Ok(RowAction::Changed),
        b"deleted" => Ok(RowAction::Deleted),
        _ => Err(unknown("action", field, "created, changed or deleted")),
    }
}

fn read_direction(field: &[u8]) -> Result<Side, DefectKind> {
    match field {
        b"bid" => Ok(Side::Bid),
        b"ask" => Ok(Side::Ask),
        _ => Err(unknown("direction", field, "bid or ask")),
    }
}

fn unknown(column: &'static str, field: &[u8], wanted: &'static str) -> DefectKind {
    DefectKind::UnknownWord { column, found: text(field), wanted }
}

/// Returns a field as text, shortened for display.
fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&field[..field.len().min(64)]).into_owned()
}
