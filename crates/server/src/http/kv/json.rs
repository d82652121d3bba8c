//! Converts keys and values to JSON. Bytes that are not UTF-8 are encoded as base64, in a field with the suffix
//! `_base64`.

use dunlin::state::{FoundKey, KeyEvent, KeyItem};
use dunlin::wire::http::base64;
use serde_json::{Map, Value};

fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => {
            let mut text = String::new();
            base64(bytes, &mut text);
            object.insert(format!("{name}_base64"), text.into())
        }
    };
}

fn entry(key: &[u8], item: &KeyItem) -> Map<String, Value> {
    let mut object = Map::new();
    put_bytes(&mut object, "key", key);
    put_bytes(&mut object, "value", &item.value);
    let numbers = [
        ("created", item.created),
        ("modified", item.modified),
        ("version", item.version),
        ("lease", item.lease),
    ];
    object.extend(numbers.map(|(name, number)| (name.to_owned(), number.into())));
    object
}

pub(super) fn pair(pair: &FoundKey) -> Value {
    entry(&pair.key, &pair.item).into()
}

pub(super) fn event(event: &KeyEvent<'_>) -> Value {
    let mut object = Map::new();
    match event {
        KeyEvent::Put { key, item } => {
            object.insert("type".to_owned(), "put".into());
            object.extend(entry(key, item));
        }
        KeyEvent::Deleted { key } => {
            object.insert("type".to_owned(), "delete".into());
            put_bytes(&mut object, "key", key);
        }
    }
    object.into()
}
