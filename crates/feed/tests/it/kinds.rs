//! Tests that reducers are created by the names of their kinds.

use std::any::Any;
use std::collections::BTreeMap;

use dunlin_feed::{Book, KINDS, LastValue, Orders, PriceLevels, make_reducer};

fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[test]
fn each_reducer_name_creates_its_reducer_type() {
    let reducers = KINDS.map(|kind| make_reducer(kind, &BTreeMap::new()).unwrap());
    let [book, orders, last] = reducers.each_ref().map(|reducer| reducer.as_ref() as &dyn Any);
    assert!(book.is::<Book>() && orders.is::<Orders>() && last.is::<LastValue>());
    let book = make_reducer("book", &options(&[("price_decimals", "2"), ("depth", "5")])).unwrap();
    let book: &dyn Any = book.as_ref();
    assert_eq!(book.downcast_ref::<Book>().unwrap().scale().price_text(12_345), "123.45");
}

#[test]
fn error_names_an_unknown_reducer_kind_or_option() {
    let refused = |kind, pairs: &[_]| make_reducer(kind, &options(pairs)).unwrap_err().to_string();
    assert_eq!(refused("l4", &[]), "there is no state of kind `l4`: use one of book, orders, last");
    assert_eq!(refused("last", &[("tick", "1")]), "`last` has no option `tick`");
    assert_eq!(refused("orders", &[("depths", "1")]), "`orders` has no option `depths`");
}
