//! Collects the pieces of one write to a socket. Small pieces are copied into one buffer. Larger pieces are not copied,
//! but borrowed.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dunlin::topic::{MemoryBudget, MemoryBudgetError};

use super::outbound::{OutboundBuffer, UnsentPart};

/// Maximum number of pieces in one write.
const PIECES_MAX: usize = 64;
/// No piece is added to a write that has reached this many bytes. The last piece may exceed the limit.
pub(crate) const WRITE_BYTES_MAX: usize = 256 << 10;
/// Minimum size of a piece that is borrowed instead of copied, bytes. Copying this many bytes costs about as much as
/// writing one more piece.
pub(crate) const BORROWED_BYTES_MIN: usize = 1 << 10;

pub(crate) struct Pieces<'a, 's> {
    copied: &'s mut Vec<u8>,
    pieces: [Piece<'a>; PIECES_MAX],
    count: usize,
    bytes: usize,
}

#[derive(Clone)]
enum Piece<'a> {
    Copied(Range<usize>),
    Borrowed(&'a [u8]),
    Shared(&'a Bytes),
}

impl Piece<'_> {
    const NONE: Piece<'static> = Piece::Borrowed(&[]);
}

impl<'a, 's> Pieces<'a, 's> {
    /// Starts a write that begins with `outbound`, the session's unsent output.
    pub(crate) fn new(copied: &'s mut Vec<u8>, outbound: &'a OutboundBuffer) -> Pieces<'a, 's> {
        copied.clear();
        let mut pieces = Pieces { copied, pieces: [Piece::NONE; PIECES_MAX], count: 0, bytes: 0 };
        for part in &outbound.partial {
            pieces.put(part.bytes());
        }
        pieces.put(outbound.control());
        pieces
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the write has room for a message that consists of up to three pieces.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes < WRITE_BYTES_MAX && self.count + 3 <= PIECES_MAX
    }

    /// Adds bytes to the write. A large slice is not copied, but stays borrowed until it is written.
    pub(crate) fn put(&mut self, bytes: &'a [u8]) {
        if bytes.len() < BORROWED_BYTES_MIN {
            self.put_copy(bytes)
        } else {
            self.add(Piece::Borrowed(bytes), bytes.len())
        }
    }

    /// Like [`put`](Pieces::put), but for reference-counted bytes. If only a part of the bytes is sent, the rest is
    /// kept without a copy.
    pub(crate) fn put_shared(&mut self, bytes: &'a Bytes) {
        if bytes.len() < BORROWED_BYTES_MIN {
            self.put_copy(bytes)
        } else {
            self.add(Piece::Shared(bytes), bytes.len())
        }
    }

    pub(crate) fn put_copy(&mut self, bytes: &[u8]) {
        self.append_with(|out| out.extend_from_slice(bytes));
    }

    /// Calls `append`, which appends bytes to the buffer of copied pieces, and includes these bytes in the write.
    #[inline]
    pub(crate) fn append_with(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        let start = self.copied.len();
        append(self.copied);
        let end = self.copied.len();
        if start == end {
            return;
        }
        if let Some(Piece::Copied(last)) = self.pieces[..self.count].last_mut() {
            last.end = end;
            self.bytes += end - start;
        } else {
            self.add(Piece::Copied(start..end), end - start);
        }
    }

    /// The last `back` bytes in the buffer of copied pieces, for changes by the caller.
    pub(crate) fn last_copied(&mut self, back: usize) -> &mut [u8] {
        let from = self.copied.len() - back;
        &mut self.copied[from..]
    }

    fn add(&mut self, piece: Piece<'a>, bytes: usize) {
        self.pieces[self.count] = piece;
        self.count += 1;
        self.bytes += bytes;
    }

    pub(crate) fn write<T>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        for (slice, piece) in slices.iter_mut().zip(&self.pieces[..self.count]) {
            *slice = IoSlice::new(self.bytes_of(piece));
        }
        write(&slices[..self.count])
    }

    fn bytes_of<'p>(&'p self, piece: &'p Piece<'a>) -> &'p [u8] {
        match piece {
            Piece::Copied(range) => &self.copied[range.clone()],
            Piece::Borrowed(bytes) => bytes,
            Piece::Shared(bytes) => bytes,
        }
    }

    /// Returns the bytes in this range of the write, in a form that the session can keep and send later. Large copies
    /// are charged to `budget`.
    pub(crate) fn unsent_parts(
        &self,
        range: Range<usize>,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Vec<UnsentPart>, MemoryBudgetError> {
        let mut parts = Vec::new();
        let mut at = 0;
        for piece in &self.pieces[..self.count] {
            let bytes = self.bytes_of(piece);
            let from = range.start.clamp(at, at + bytes.len()) - at;
            let to = range.end.clamp(at, at + bytes.len()) - at;
            at += bytes.len();
            if from == to {
                continue;
            }
            parts.push(match piece {
                Piece::Shared(bytes) => UnsentPart::Shared(bytes.slice(from..to)),
                _ => UnsentPart::copy(&bytes[from..to], budget)?,
            });
        }
        Ok(parts)
    }
}
