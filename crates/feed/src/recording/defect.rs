//! Defects: lines that cannot be used.

use crate::decimal::DecimalError;
use crate::side::Side;

/// A part of a recording that could not be read, with its line number and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct Defect {
    /// Line number, from 1.
    pub line: u64,
    /// Kind of defect.
    pub kind: DefectKind,
}

/// The reason why a line of a recording was skipped; some variants skip only a part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefectKind {
    /// The line is too long.
    #[error("the line is longer than {} bytes and was left out", super::LINE_BYTES_MAX)]
    TooLong,
    /// The line is not JSON, or not of the form of the stream's messages.
    #[error("the line is not a message of the stream: {why}")]
    NotAMessage {
        /// The parser's message, with the column.
        why: String,
    },
    /// A market change has no time.
    #[error("a market change has no time `pt`")]
    NoTime,
    /// A market id cannot be part of a topic's name. The market's changes were skipped.
    #[error("market id {id:?} cannot be part of a topic's name: {why}")]
    BadMarket {
        /// The market id.
        id: String,
        /// The rule that is broken.
        why: String,
    },
    /// A level of a runner is not valid. The runner's changes of this message were skipped.
    #[error("runner {runner}, {field}: {error}")]
    BadLevel {
        /// Id of the runner.
        runner: u64,
        /// `price`, `size` or `hc`.
        field: &'static str,
        /// The reason why the number is not valid.
        error: NumberError,
    },
    /// The limit of books is reached. The runner was skipped.
    #[error("runner {runner} exceeds the limit of {} books", super::RUNNERS_MAX)]
    TooManyRunners {
        /// Id of the runner.
        runner: u64,
    },
    /// The heading lacks columns. No row can then be read.
    #[error("the heading has no column {}", .missing.join(", "))]
    MissingColumns {
        /// Names of missing columns.
        missing: Vec<&'static str>,
    },
    /// The row has more or fewer columns than the heading, for example because the file was cut.
    #[error("the row has {found} columns, but the heading has {wanted}")]
    Columns {
        /// Number of columns of the row.
        found: usize,
        /// Number of columns of the heading.
        wanted: usize,
    },
    /// A field is not a valid number for its column.
    #[error("{column}: {error}")]
    BadField {
        /// Name of the column.
        column: &'static str,
        /// The reason why the number is not valid.
        error: NumberError,
    },
    /// A field has a word that its column does not allow.
    #[error("{column}: `{found}` is not {wanted}")]
    UnknownWord {
        /// Name of the column.
        column: &'static str,
        /// The word.
        found: String,
        /// Valid words.
        wanted: &'static str,
    },
    /// An event names an order that was never created, or was deleted.
    #[error("the line {action} order {id}, which does not exist")]
    UnknownOrder {
        /// Id of the order.
        id: u64,
        /// `changes` or `deletes`.
        action: &'static str,
    },
    /// An event creates an order that exists.
    #[error("order {id} is created a second time")]
    CreatedTwice {
        /// Id of the order.
        id: u64,
    },
    /// An event moves an order to the other side.
    #[error("order {id} is on the {created} side, not on the {found} side")]
    OtherSide {
        /// Id of the order.
        id: u64,
        /// Side at creation.
        created: Side,
        /// Side in the event.
        found: Side,
    },
    /// The limit of orders is reached.
    #[error("order {id} exceeds the limit of {} orders", super::ORDERS_MAX)]
    TooManyOrders {
        /// Id of the order.
        id: u64,
    },
}

/// The reason why a field of a recording is not a valid number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumberError {
    /// The text is not a number with the column's decimals.
    #[error(transparent)]
    Decimal(#[from] DecimalError),
    /// The number is out of range.
    #[error("{value} is not {}", .wanted)]
    OutOfRange {
        /// The number, units.
        value: i64,
        /// Valid range.
        wanted: &'static str,
    },
}
