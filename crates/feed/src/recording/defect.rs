//! Defects of a recording: lines, or parts of lines, that are invalid and were skipped.

use crate::decimal::DecimalError;
use crate::side::Side;

/// A part of a recording that is invalid and was skipped, with its line number and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct Defect {
    /// Line number; the first line is 1.
    pub line: u64,
    /// The reason.
    pub kind: DefectKind,
}

/// The reason why a line of a recording, or a part of the line, was skipped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefectKind {
    /// The line is longer than [`LINE_BYTES_MAX`](super::LINE_BYTES_MAX).
    #[error("the line was skipped: it is longer than {} bytes", super::LINE_BYTES_MAX)]
    TooLong,
    /// The line is not JSON, or not a message of Betfair's stream.
    #[error("the line is not a message of the stream: {why}")]
    NotAMessage {
        /// The parser's message, with the column.
        why: String,
    },
    /// A market change message has no publish time `pt`.
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
    /// A price or size in a runner's change, or the runner's handicap, is invalid. The runner's change was skipped.
    #[error("runner {runner}, {field}: {error}")]
    BadLevel {
        /// Id of the runner.
        runner: u64,
        /// Name of the invalid field: `price`, `size` or `hc` (the handicap).
        field: &'static str,
        /// The reason why the number is not valid.
        error: NumberError,
    },
    /// The recording already has the maximum number of books, so the runner was skipped.
    #[error(
        "runner {runner} was skipped: the recording already has {} books, the maximum",
        super::RUNNERS_MAX
    )]
    TooManyRunners {
        /// Id of the runner.
        runner: u64,
    },
    /// The heading lacks columns that are needed, so that no row can be read.
    #[error("the heading has no column {}", .missing.join(", "))]
    MissingColumns {
        /// Names of the missing columns.
        missing: Vec<&'static str>,
    },
    /// The row has more or fewer columns than the heading, for example because the file ends within the row.
    #[error("the row has {found} columns, but the heading has {wanted}")]
    Columns {
        /// Number of columns in the row.
        found: usize,
        /// Number of columns in the heading.
        wanted: usize,
    },
    /// The number in a field is not valid for the field's column.
    #[error("{column}: {error}")]
    BadField {
        /// Name of the column.
        column: &'static str,
        /// The reason why the number is not valid.
        error: NumberError,
    },
    /// The word in a field is not valid for the field's column.
    #[error("{column}: `{found}` is not {wanted}")]
    UnknownWord {
        /// Name of the column.
        column: &'static str,
        /// The word.
        found: String,
        /// The valid words, for the error message.
        wanted: &'static str,
    },
    /// An event changes or deletes an order that was never created, or that was already deleted.
    #[error("the line {action} order {id}, which does not exist")]
    UnknownOrder {
        /// Id of the order.
        id: u64,
        /// Action of the event: `changes` or `deletes`.
        action: &'static str,
    },
    /// An event creates an order that already exists.
    #[error("order {id} is created a second time")]
    CreatedTwice {
        /// Id of the order.
        id: u64,
    },
    /// An event names the other side than the event that created the order.
    #[error("order {id} is on the {created} side, not on the {found} side")]
    OtherSide {
        /// Id of the order.
        id: u64,
        /// The side with which the order was created.
        created: Side,
        /// The side in the event.
        found: Side,
    },
    /// The recording already has the maximum number of open orders, so the order was skipped.
    #[error(
        "order {id} was skipped: the recording already has {} open orders, the maximum",
        super::ORDERS_MAX
    )]
    TooManyOrders {
        /// Id of the order.
        id: u64,
    },
}

/// The reason why a field of a recording is not a valid number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumberError {
    /// The text is not a number, or has more decimals than its column may have.
    #[error(transparent)]
    Decimal(#[from] DecimalError),
    /// The number is outside of the valid range.
    #[error("{value} is not {}", .wanted)]
    OutOfRange {
        /// The number, in units.
        value: i64,
        /// The valid range.
        wanted: &'static str,
    },
}
