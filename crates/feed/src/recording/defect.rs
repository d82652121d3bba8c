//! What is wrong with a line, and what was left out for it.

use crate::decimal::DecimalError;
use crate::side::Side;

/// Something of a recording that could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Defect {
    /// Counted from 1.
    pub line: u64,
    /// What it is.
    pub what: What,
}

/// What could not be used. Unless it says otherwise, the whole line was left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum What {
    /// The line is too long to be one.
    #[error("longer than {} bytes: left out", super::LINE_BYTES_MAX)]
    TooLong,
    /// The line is no JSON, or of another shape than the stream's messages.
    #[error("not a message of the stream: {why}")]
    NotAMessage {
        /// From the parser, with the column.
        why: String,
    },
    /// A market change without a time.
    #[error("a market change without its time `pt`")]
    NoTime,
    /// A market's id that cannot be part of a topic's name. The market's changes were left out.
    #[error("market id {id:?} cannot be part of a topic's name: {why}")]
    BadMarket {
        /// As it was given.
        id: String,
        /// The rule it breaks.
        why: String,
    },
    /// A runner's level that is none. This runner's changes of this message were left out.
    #[error("runner {runner}, {field}: {error}")]
    BadLevel {
        /// The runner's id.
        runner: u64,
        /// `price`, `size` or `hc`.
        field: &'static str,
        /// What is wrong with it.
        error: NumberError,
    },
    /// More books than are held. The runner was left out.
    #[error("runner {runner} would be one more than the {} books held", super::RUNNERS_MAX)]
    TooManyRunners {
        /// The runner's id.
        runner: u64,
    },
    /// The heading lacks columns, so nothing of the file can be read.
    #[error("the heading has no column {}", .missing.join(", "))]
    MissingColumns {
        /// Their names.
        missing: Vec<&'static str>,
    },
    /// The row has more or fewer columns than the heading, as after a cut.
    #[error("{found} columns, the heading has {wanted}")]
    Columns {
        /// Of the row.
        found: usize,
        /// Of the heading.
        wanted: usize,
    },
    /// A field that is not what its column holds.
    #[error("{column}: {error}")]
    BadField {
        /// The column's name.
        column: &'static str,
        /// What is wrong with it.
        error: NumberError,
    },
    /// A word that the column does not know.
    #[error("{column}: `{found}` is not {wanted}")]
    UnknownWord {
        /// The column's name.
        column: &'static str,
        /// As it was given.
        found: String,
        /// The words it knows.
        wanted: &'static str,
    },
    /// An event names an order that was never created, or is gone.
    #[error("order {id} is {action}, but was not there")]
    UnknownOrder {
        /// The order's id.
        id: u64,
        /// `changed` or `deleted`.
        action: &'static str,
    },
    /// An event creates an order that is there.
    #[error("order {id} is created a second time")]
    CreatedTwice {
        /// The order's id.
        id: u64,
    },
    /// An event moves an order to the other side.
    #[error("order {id} is on the {held} side, not on the {found} side")]
    OtherSide {
        /// The order's id.
        id: u64,
        /// Where it was created.
        held: Side,
        /// As the event says.
        found: Side,
    },
    /// More orders than are held.
    #[error("order {id} would be one more than the {} orders held", super::ORDERS_MAX)]
    TooManyOrders {
        /// The order's id.
        id: u64,
    },
}

/// Why a field is not the number it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumberError {
    /// It is not a number of the column's decimals.
    #[error(transparent)]
    Decimal(#[from] DecimalError),
    /// It is a number, but none this can be.
    #[error("{value} is not {}", .wanted)]
    OutOfRange {
        /// In units.
        value: i64,
        /// What it can be.
        wanted: &'static str,
    },
}
