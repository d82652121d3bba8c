//! The client's read buffers, called chunks. Subscribers read frames from a chunk without copying them.
//!
//! The thread that reads the socket fills a chunk as long as no subscriber holds it. While a subscriber holds a chunk,
//! the thread reads into another one. When no subscriber holds a chunk any more, the thread may use it again.

use std::sync::Arc;

use crate::limits::SPARE_CHUNKS_MAX;

#[derive(Debug)]
pub(crate) struct Chunks {
    chunk_bytes: usize,
    current: Arc<Vec<u8>>,
    /// The number of bytes at the beginning of `current` whose messages were delivered.
    delivered: usize,
    /// Earlier chunks, which subscribers still held when the thread began to read into another chunk. Once no
    /// subscriber holds such a chunk, the thread can use it again.
    spare: Vec<Arc<Vec<u8>>>,
}

impl Chunks {
    pub(crate) fn new(chunk_bytes: usize) -> Chunks {
        Chunks { chunk_bytes, current: Arc::default(), delivered: 0, spare: Vec::new() }
    }

    /// Discards all undelivered bytes, because a new connection begins.
    pub(crate) fn clear(&mut self) {
        self.delivered = self.current.len();
    }

    /// Returns the current chunk, and the index of its first undelivered byte.
    #[inline]
    pub(crate) fn unread(&self) -> (&Arc<Vec<u8>>, usize) {
        (&self.current, self.delivered)
    }

    #[inline]
    pub(crate) fn advance_to(&mut self, delivered: usize) {
        self.delivered = delivered;
    }

    /// Returns the buffer to read into. It contains the undelivered bytes, and has room for a message of `need` bytes.
    #[inline]
    pub(crate) fn reserve(&mut self, need: usize) -> &mut Vec<u8> {
        let capacity = need.max(self.chunk_bytes);
        if Arc::get_mut(&mut self.current).is_none_or(|chunk| chunk.capacity() < capacity) {
            self.switch_chunk(capacity);
        }
        // At this point, no subscriber holds the current chunk, so `make_mut` does not clone it.
        let chunk = Arc::make_mut(&mut self.current);
        if self.delivered == chunk.len() {
            chunk.clear();
            self.delivered = 0;
        } else if chunk.capacity() - self.delivered < need
            || chunk.capacity() - chunk.len() < self.chunk_bytes / 4
        {
            chunk.drain(..self.delivered);
            self.delivered = 0;
        }
        chunk
    }

    /// Makes another chunk of at least `capacity` bytes the current one, and copies the undelivered bytes there.
    fn switch_chunk(&mut self, capacity: usize) {
        let free = self.spare.iter_mut().position(|chunk| Arc::get_mut(chunk).is_some());
        let mut next = free.map(|at| self.spare.swap_remove(at)).unwrap_or_default();
        let chunk = Arc::make_mut(&mut next);
        chunk.clear();
        chunk.reserve_exact(capacity);
        chunk.extend_from_slice(&self.current[self.delivered..]);
        let last = std::mem::replace(&mut self.current, next);
        self.delivered = 0;
        // A chunk that has grown for one large message is not kept.
        if self.spare.len() < SPARE_CHUNKS_MAX && last.capacity() <= 4 * self.chunk_bytes {
            self.spare.push(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreferenced_chunk_is_reused() {
        let mut chunks = Chunks::new(64);
        chunks.reserve(8).extend_from_slice(&[1; 10]);
        let first = chunks.unread().0.as_ptr();
        chunks.advance_to(10);
        assert_eq!(chunks.reserve(8).as_ptr(), first);
        assert!(chunks.unread().0.is_empty());
    }

    #[test]
    fn referenced_chunk_is_reused_only_after_its_release() {
        let mut chunks = Chunks::new(64);
        chunks.reserve(8).extend_from_slice(&[1; 10]);
        let referenced = Arc::clone(chunks.unread().0);
        chunks.advance_to(8);
        chunks.reserve(8).extend_from_slice(&[2; 3]);
        assert_eq!(**referenced, [1; 10]);
        let (now, delivered) = chunks.unread();
        assert_eq!(&now[delivered..], [1, 1, 2, 2, 2], "the part of a message moved along");
        let first = referenced.as_ptr();
        drop(referenced);
        let second = Arc::clone(chunks.unread().0);
        chunks.advance_to(5);
        assert_eq!(chunks.reserve(8).as_ptr(), first);
        drop(second);
    }

    #[test]
    fn message_larger_than_a_chunk_gets_a_large_enough_buffer() {
        let mut chunks = Chunks::new(64);
        chunks.reserve(8).extend_from_slice(&[3; 60]);
        chunks.advance_to(40);
        let room = chunks.reserve(1000);
        assert!(room.capacity() >= 1000);
        assert_eq!(room[..], [3; 20]);
    }
}
