//! Defines [`Change`], the record of changed keys that a watch receives for each revision.

use std::borrow::Cow;

use crate::error::ControlDecodeError;
use crate::item::KeyItem;
use crate::layout::{Fields, Layout, choice};

/// A change of the key-value state: all keys that one revision wrote or deleted. Topic `$kv` has one record for each
/// change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The number of the revision that changed the keys.
    pub revision: u64,
    /// The changed keys in encoded form, which [`KeyEvents`] decodes.
    pub bytes: Vec<u8>,
}

choice! {
    /// A change of one key in a revision: the key was written or deleted.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum KeyEvent<'a> {
        /// The key was written.
        Put { /// The key.
            key: &'a [u8], /// The present value, revisions and lease.
            item: KeyItem } = 1,
        /// The key was deleted.
        Deleted { /// The key.
            key: &'a [u8] } = 2,
    }
}

/// An iterator that decodes the changed keys of one [`Change`], in the order of the changes.
#[derive(Debug, Clone)]
pub struct KeyEvents<'a> {
    fields: Fields<'a>,
}

impl<'a> KeyEvents<'a> {
    /// Creates an iterator over the changed keys in `bytes`, the encoding that [`Change::bytes`] contains. Fails if the
    /// version of the encoding is unknown.
    pub fn new(bytes: &'a [u8]) -> Result<KeyEvents<'a>, ControlDecodeError> {
        let mut fields = Fields::new(bytes);
        match u8::read(&mut fields)? {
            crate::VERSION => Ok(KeyEvents { fields }),
            version => Err(ControlDecodeError::Version(version)),
        }
    }
}

/// Removes from the encoded `bytes` of a [`Change`] the keys for which `is_visible` returns false. Returns the
/// remaining bytes, or `None` if every key was removed.
pub fn visible_events<'a>(
    bytes: &'a [u8],
    is_visible: impl Fn(&[u8]) -> bool,
) -> Result<Option<Cow<'a, [u8]>>, ControlDecodeError> {
    let mut events = KeyEvents::new(bytes)?;
    let (mut visible, mut hidden) = (vec![crate::VERSION], 0);
    loop {
        let before = events.fields.rest;
        let Some(event) = events.next() else { break };
        let (KeyEvent::Put { key, .. } | KeyEvent::Deleted { key }) = event?;
        if is_visible(key) {
            visible.extend_from_slice(&before[..before.len() - events.fields.rest.len()]);
        } else {
            hidden += 1;
        }
    }
    Ok(match hidden {
        0 => Some(Cow::Borrowed(bytes)),
        _ if visible.len() == 1 => None,
        _ => Some(Cow::Owned(visible)),
    })
}

impl<'a> Iterator for KeyEvents<'a> {
    type Item = Result<KeyEvent<'a>, ControlDecodeError>;

    fn next(&mut self) -> Option<Result<KeyEvent<'a>, ControlDecodeError>> {
        if self.fields.rest.is_empty() {
            return None;
        }
        let event = KeyEvent::read(&mut self.fields);
        if event.is_err() {
            self.fields.rest = &[];
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(keys: &[&str]) -> Vec<u8> {
        let mut bytes = vec![crate::VERSION];
        for key in keys {
            KeyEvent::Deleted { key: key.as_bytes() }.write(&mut bytes);
        }
        bytes
    }

    #[test]
    fn watched_change_contains_only_events_of_permitted_keys() {
        let both = change(&["a/1", "b/1", "a/2"]);
        let of_a = |key: &[u8]| key.starts_with(b"a/");
        assert_eq!(visible_events(&both, of_a).unwrap().unwrap(), change(&["a/1", "a/2"]));
        assert_eq!(visible_events(&both, |_| true).unwrap().unwrap(), both);
        assert_eq!(visible_events(&both, |_| false), Ok(None));
        let other = [&[crate::VERSION + 1][..], &both[1..]].concat();
        assert_eq!(visible_events(&other, |_| true), Err(ControlDecodeError::Version(crate::VERSION + 1)));
        assert!(visible_events(&both[..both.len() - 1], of_a).is_err());
    }
}
