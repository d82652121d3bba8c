//! The buffers that bytes are read into, and that runs are read from without a copy.
//!
//! A chunk is written by whoever reads the socket, as long as nobody else holds it. Subscribers
//! that still read runs in it keep it; then reading goes on in another one, and it comes back when they let go.

use std::sync::Arc;

use crate::limits::CHUNKS_KEPT_MAX;

#[derive(Debug)]
pub(crate) struct Chunks {
    bytes_wanted: usize,
    current: Arc<Vec<u8>>,
    /// Bytes of `current` whose messages were handed out.
    done: usize,
    /// Chunks that somebody else still held.
    kept: Vec<Arc<Vec<u8>>>,
}

impl Chunks {
    pub(crate) fn new(bytes_wanted: usize) -> Chunks {
        Chunks { bytes_wanted, current: Arc::default(), done: 0, kept: Vec::new() }
    }

    /// Forgets what was read: the stream begins anew.
    pub(crate) fn clear(&mut self) {
        self.done = self.current.len();
    }

    /// What was read and not handed out yet, and the chunk it lies in.
    #[inline]
    pub(crate) fn unread(&self) -> (&Arc<Vec<u8>>, usize) {
        (&self.current, self.done)
    }

    /// So many more bytes were handed out.
    #[inline]
    pub(crate) fn advance_to(&mut self, done: usize) {
        self.done = done;
    }

    /// A buffer with room, which holds what is left of a message that is `need` bytes long.
    #[inline]
    pub(crate) fn room(&mut self, need: usize) -> &mut Vec<u8> {
        let capacity = need.max(self.bytes_wanted);
        if Arc::get_mut(&mut self.current).is_none_or(|chunk| chunk.capacity() < capacity) {
            self.change(capacity);
        }
        // `change` left a chunk that nobody else holds; this never clones.
        let chunk = Arc::make_mut(&mut self.current);
        if self.done == chunk.len() {
            chunk.clear();
            self.done = 0;
        } else if chunk.capacity() - self.done < need
            || chunk.capacity() - chunk.len() < self.bytes_wanted / 4
        {
            chunk.drain(..self.done);
            self.done = 0;
        }
        chunk
    }

    /// Goes on in another chunk, to which the part of a message that is there moves.
    fn change(&mut self, capacity: usize) {
        let free = self.kept.iter_mut().position(|chunk| Arc::get_mut(chunk).is_some());
        let mut next = free.map(|at| self.kept.swap_remove(at)).unwrap_or_default();
        let chunk = Arc::make_mut(&mut next);
        chunk.clear();
        chunk.reserve_exact(capacity);
        chunk.extend_from_slice(&self.current[self.done..]);
        let last = std::mem::replace(&mut self.current, next);
        self.done = 0;
        // A chunk grown for one large message is not kept for ever.
        if self.kept.len() < CHUNKS_KEPT_MAX && last.capacity() <= 4 * self.bytes_wanted {
            self.kept.push(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreferenced_chunk_is_reused() {
        let mut chunks = Chunks::new(64);
        chunks.room(8).extend_from_slice(&[1; 10]);
        let first = chunks.unread().0.as_ptr();
        chunks.advance_to(10);
        assert_eq!(chunks.room(8).as_ptr(), first);
        assert!(chunks.unread().0.is_empty());
    }

    #[test]
    fn referenced_chunk_is_reused_only_after_its_release() {
        let mut chunks = Chunks::new(64);
        chunks.room(8).extend_from_slice(&[1; 10]);
        let held = Arc::clone(chunks.unread().0);
        chunks.advance_to(8);
        chunks.room(8).extend_from_slice(&[2; 3]);
        assert_eq!(**held, [1; 10]);
        let (now, done) = chunks.unread();
        assert_eq!(&now[done..], [1, 1, 2, 2, 2], "the part of a message moved along");
        let first = held.as_ptr();
        drop(held);
        let second = Arc::clone(chunks.unread().0);
        chunks.advance_to(5);
        assert_eq!(chunks.room(8).as_ptr(), first);
        drop(second);
    }

    #[test]
    fn message_larger_than_a_chunk_gets_room() {
        let mut chunks = Chunks::new(64);
        chunks.room(8).extend_from_slice(&[3; 60]);
        chunks.advance_to(40);
        let room = chunks.room(1000);
        assert!(room.capacity() >= 1000);
        assert_eq!(room[..], [3; 20]);
    }
}
