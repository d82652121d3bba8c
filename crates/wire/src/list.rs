//! Defines the lists in messages. Sending and receiving a list allocates no memory.

use crate::error::WireError;
use crate::layout::{Fields, Layout};

/// A list in a message. It consists either of items to send, or of received bytes that are decoded item by item.
///
/// The bytes are checked when the message is decoded, so iterating over the list yields no errors.
#[derive(Clone, Copy)]
pub struct MessageList<'a, T>(Source<'a, T>);

#[derive(Clone, Copy)]
enum Source<'a, T> {
    Items(&'a [T]),
    Checked { count: u32, fields: Fields<'a> },
}

impl<'a, T> MessageList<'a, T> {
    /// Creates a list of items to send.
    pub fn new(items: &'a [T]) -> MessageList<'a, T> {
        MessageList(Source::Items(items))
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Items(items) => items.len(),
            Source::Checked { count, .. } => count as usize,
        }
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[allow(private_bounds)] // `Layout` is internal: no other crate implements it.
impl<'a, T: Layout<'a> + Copy> MessageList<'a, T> {
    /// Iterates over the items.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let (items, mut checked) = match self.0 {
            Source::Items(items) => (items, None),
            Source::Checked { fields, count } => (&[][..], Some((fields, count))),
        };
        let from_bytes = std::iter::from_fn(move || {
            let (fields, left) = checked.as_mut()?;
            *left = left.checked_sub(1)?;
            T::read(fields).ok()
        });
        items.iter().copied().chain(from_bytes)
    }
}

impl<'a, T: Layout<'a> + Copy> Layout<'a> for MessageList<'a, T> {
    fn read(fields: &mut Fields<'a>) -> Result<MessageList<'a, T>, WireError> {
        let count = u32::read(fields)?;
        let start = *fields;
        for _ in 0..count {
            // Every item has at least one byte, so if the count is too large, decoding fails at the end of the message
            // at the latest.
            T::read(fields)?;
        }
        Ok(MessageList(Source::Checked { count, fields: start }))
    }

    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u32).write(out);
        for item in self.iter() {
            item.write(out);
        }
    }
}

impl<'a, T: Layout<'a> + Copy + PartialEq> PartialEq for MessageList<'a, T> {
    fn eq(&self, other: &MessageList<'a, T>) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(a, b)| a == b)
    }
}

impl<'a, T: Layout<'a> + Copy + Eq> Eq for MessageList<'a, T> {}

impl<'a, T: Layout<'a> + Copy + std::fmt::Debug> std::fmt::Debug for MessageList<'a, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
