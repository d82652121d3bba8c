//! Reads lists and maps from JSON bodies, and limits the number of their elements, because a decoded element takes much
//! more memory than its shortest JSON.
//!
//! The functions are for serde's attribute `deserialize_with`.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Maximum number of headers of a record in JSON. A valid record cannot have more, because all fields of a record
/// together take at most 64 KiB, and each header takes at least 4 bytes.
pub(super) const HEADERS_MAX: usize = 16 << 10;

/// Reads a list of at most `MAX` elements.
pub(super) fn list<'de, const MAX: usize, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    from.deserialize_seq(ListVisitor::<MAX, T>(PhantomData))
}

/// Reads a map of texts with at most `MAX` keys.
pub(super) fn map<'de, const MAX: usize, D>(from: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    from.deserialize_map(MapVisitor::<MAX>)
}

struct ListVisitor<const MAX: usize, T>(PhantomData<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for ListVisitor<MAX, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            if elements.len() == MAX {
                return Err(A::Error::custom(format_args!("a list has more than {MAX} elements")));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}

struct MapVisitor<const MAX: usize>;

impl<'de, const MAX: usize> Visitor<'de> for MapVisitor<MAX> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with at most {MAX} keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<BTreeMap<String, String>, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some((key, value)) = object.next_entry()? {
            entries.insert(key, value);
            if entries.len() > MAX {
                return Err(A::Error::custom(format_args!("an object has more than {MAX} keys")));
            }
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Body {
        #[serde(default, deserialize_with = "list::<2, _, _>")]
        numbers: Vec<u8>,
        #[serde(default, deserialize_with = "map::<2, _>")]
        texts: BTreeMap<String, String>,
    }

    #[test]
    fn json_lists_and_maps_over_their_limit_are_refused() {
        let body: Body =
            serde_json::from_str(r#"{"numbers":[1,2],"texts":{"a":"","b":"","a":"x"}}"#).unwrap();
        assert_eq!((body.numbers, body.texts.len(), &*body.texts["a"]), (vec![1, 2], 2, "x"));
        for (text, limit) in [
            (r#"{"numbers":[1,2,3]}"#, "more than 2 elements"),
            (r#"{"texts":{"a":"","b":"","c":""}}"#, "more than 2 keys"),
        ] {
            let error = serde_json::from_str::<Body>(text).unwrap_err().to_string();
            assert!(error.contains(limit), "{error}");
        }
    }
}
