//! The kinds of state that a topic can be configured with, by name.

use std::collections::BTreeMap;

use dunlin_topic::Fold;

use crate::book::Book;
use crate::last_value::LastValue;
use crate::limits::Limits;
use crate::orders::Orders;
use crate::scale::{OptionsError, Scale};

/// The name of books by price level: [`Book`].
pub const BOOK: &str = "book";
/// The name of books by order: [`Orders`].
pub const ORDERS: &str = "orders";
/// The name of last values by key: [`LastValue`].
pub const LAST: &str = "last";
/// All names.
pub const KINDS: [&str; 3] = [BOOK, ORDERS, LAST];

/// An empty state of a kind. Books take the options of a [`Scale`], last values none.
pub fn fold(kind: &str, options: &BTreeMap<String, String>) -> Result<Box<dyn Fold>, OptionsError> {
    fold_within(kind, options, Limits::default())
}

/// The same, holding no more than this.
pub fn fold_within(
    kind: &str,
    options: &BTreeMap<String, String>,
    limits: Limits,
) -> Result<Box<dyn Fold>, OptionsError> {
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
