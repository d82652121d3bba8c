//! What a revision changed, as those who watch are told.

use crate::error::DecodeError;
use crate::item::Item;
use crate::layout::{Fields, Layout, choice};

/// What one revision changed: the record of this sequence in the topic of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision.
    pub revision: u64,
    /// The bytes of its [`Events`].
    pub bytes: Vec<u8>,
}

choice! {
    /// What became of a key.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Event<'a> {
        /// It was written.
        Put { /// The key.
            key: &'a [u8], /// What it holds now.
            item: Item } = 1,
        /// It was deleted.
        Deleted { /// The key.
            key: &'a [u8] } = 2,
    }
}

/// The events of one [`Change`], in the order in which they happened.
#[derive(Debug, Clone)]
pub struct Events<'a> {
    fields: Fields<'a>,
}

impl<'a> Events<'a> {
    /// Those that these bytes tell of.
    pub fn new(bytes: &'a [u8]) -> Result<Events<'a>, DecodeError> {
        let mut fields = Fields { rest: bytes };
        match u8::read(&mut fields)? {
            crate::VERSION => Ok(Events { fields }),
            version => Err(DecodeError::Version(version)),
        }
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<Event<'a>, DecodeError>;

    fn next(&mut self) -> Option<Result<Event<'a>, DecodeError>> {
        if self.fields.rest.is_empty() {
            return None;
        }
        let event = Event::read(&mut self.fields);
        if event.is_err() {
            self.fields.rest = &[];
        }
        Some(event)
    }
}
