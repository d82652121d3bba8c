//! Kinds of state that a topic's configuration can name.

use std::collections::BTreeMap;

use dunlin_topic::Reducer;

use crate::book::Book;
use crate::last_value::LastValue;
use crate::limits::FeedLimits;
use crate::orders::Orders;
use crate::scale::{OptionsError, Scale};

/// Kind of books by price level: [`Book`].
pub const BOOK: &str = "book";
/// Kind of books by order: [`Orders`].
pub const ORDERS: &str = "orders";
/// Kind of last values by key: [`LastValue`].
pub const LAST: &str = "last";
/// All kinds.
pub const KINDS: [&str; 3] = [BOOK, ORDERS, LAST];

/// Creates an empty state of a kind. Books accept the options of a [`Scale`]; last values accept no options.
pub fn make_reducer(
    kind: &str,
    options: &BTreeMap<String, String>,
) -> Result<Box<dyn Reducer>, OptionsError> {
    make_reducer_within(kind, options, FeedLimits::default())
}

/// All options of a kind with their values, also those that `options` leaves at their defaults. Options that make equal
/// states have equal results.
pub fn complete_options(
    kind: &str,
    options: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, OptionsError> {
    match kind {
        BOOK | ORDERS => Ok(Scale::parse(kind, options)?.options()),
        _ => make_reducer(kind, options).map(|_| options.clone()),
    }
}

/// Like [`make_reducer`], with limits.
pub fn make_reducer_within(
    kind: &str,
    options: &BTreeMap<String, String>,
    limits: FeedLimits,
) -> Result<Box<dyn Reducer>, OptionsError> {
    match kind {
        BOOK => Ok(Box::new(Book::with_limits(Scale::parse(kind, options)?, limits))),
        ORDERS => Ok(Box::new(Orders::with_limits(Scale::parse(kind, options)?, limits))),
        LAST => match options.keys().next() {
            Some(option) => {
                Err(OptionsError::UnknownOption { kind: kind.to_owned(), option: option.clone() })
            }
            None => Ok(Box::new(LastValue::with_limits(limits))),
        },
        _ => Err(OptionsError::UnknownKind { kind: kind.to_owned() }),
    }
}
