//! The kinds of state that a topic's configuration can name.

use std::collections::BTreeMap;

use dunlin_topic::Reducer;

use crate::book::Book;
use crate::last_value::LastValue;
use crate::limits::FeedLimits;
use crate::orders::Orders;
use crate::scale::{OptionsError, Scale};

/// Name of the kind for order books that consist of price levels ([`Book`]).
pub const BOOK: &str = "book";
/// Name of the kind for order books that consist of single orders ([`Orders`]).
pub const ORDERS: &str = "orders";
/// Name of the kind for states that store the last value of each key ([`LastValue`]).
pub const LAST: &str = "last";
/// Names of all kinds.
pub const KINDS: [&str; 3] = [BOOK, ORDERS, LAST];

/// Creates an empty state of a kind. Order books accept the options that [`Scale::parse`] describes; a state with the
/// last values of keys has no options.
pub fn make_reducer(
    kind: &str,
    options: &BTreeMap<String, String>,
) -> Result<Box<dyn Reducer>, OptionsError> {
    make_reducer_within(kind, options, FeedLimits::default())
}

/// Returns all options of a kind with their values, including the defaults of options that are missing in `options`.
/// Sets of options that create equal states give equal results.
pub fn complete_options(
    kind: &str,
    options: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, OptionsError> {
    match kind {
        BOOK | ORDERS => Ok(Scale::parse(kind, options)?.options()),
        _ => make_reducer(kind, options).map(|_| options.clone()),
    }
}

/// Like [`make_reducer`], but with the given limits.
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
