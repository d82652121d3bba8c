//! A segment: consecutive records of a log in memory. This module is the only lock-free code in Dunlin.
//!
//! ```text
//!            bytes below `commit` never change      one writer, inside the log's lock
//!           |<--------- any number of readers --->|<------ room ------>|
//!  buffer   | frame | frame | frame | … | frame   |                    |
//!  commit   = bytes, count, sealed                ^ a Release store makes frames visible
//!  pins     = number of reads in progress, and the bit RETIRED
//! ```
//!
//! Invariants:
//! - Subscribers access only the bytes of the buffer below a committed length that they have loaded with `Acquire`. The
//!   store of a durable log accesses only the bytes below a written length that it has read inside the log's lock. The
//!   one [`SegmentWriter`] writes only to the bytes above all these lengths.
//! - The buffer is freed once, in [`Segment::retire`]. In one atomic step, this function checks that `pins` is 0 and
//!   sets the bit `RETIRED`. Later attempts to pin the segment see the bit and fail.
//! - During a read, a cursor holds a [`PinnedSegment`]. Between reads, it holds only an `Arc` of the [`Segment`]. This
//!   keeps about 200 bytes in memory, but not the buffer.
//!
//! If a payload is kept by reference, the buffer has a [`Bytes`] after the meta fields of the frame, instead of the
//! payload. Only [`SegmentWriter::push_by_ref`] sets [`FLAG_BY_REF`]; [`Frame::check`] refuses received frames with
//! this flag.
//!
//! Rejected alternatives: Epoch-based reclamation needs one more crate for one word of state. A reference count for
//! each record costs two contended writes for each record. In Aeron's method, a frame is committed by writing its
//! length field; this needs zeroed memory ahead of the writer.

mod buffer;
#[cfg(all(test, loom))]
mod model;
mod prefetch;

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_frame::{FLAG_BY_REF, Frame, FrameLayout, HEAD_BYTES, RecordMeta, padded};

use crate::sync::{AtomicU32, AtomicU64, COMMIT_LOAD, COMMIT_STORE, Ordering, PIN, RETIRE, UNPIN};

pub(crate) use buffer::{BUFFER_BYTES_MIN, Buffer, BufferPool};

/// Number of bytes that the reference to a payload takes in the buffer.
const SLOT_BYTES: usize = padded(size_of::<Bytes>());
/// While a frame is read, the cache lines at this distance after the start of the frame are prefetched, bytes.
const READ_AHEAD_BYTES: usize = 512;
const RETIRED: u32 = 1 << 31;
const SEALED: u64 = 1 << 63;

/// A length of a segment, either written or committed: its bytes and records, and whether the segment is sealed, which
/// means complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Commit {
    pub(crate) bytes: u32,
    pub(crate) count: u32,
    pub(crate) sealed: bool,
}

impl Commit {
    #[inline(always)]
    fn pack(self) -> u64 {
        self.bytes as u64 | (self.count as u64) << 32 | if self.sealed { SEALED } else { 0 }
    }

    #[inline(always)]
    fn unpack(word: u64) -> Commit {
        Commit { bytes: word as u32, count: ((word & !SEALED) >> 32) as u32, sealed: word & SEALED != 0 }
    }
}

/// A value on a cache line of its own. When subscribers write this value, they therefore do not slow down the log's
/// writer.
#[derive(Debug)]
#[repr(align(64))]
struct Line<T>(T);

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) first_seq: u64,
    base: *mut u8,
    capacity: u32,
    commit: AtomicU64,
    pins: Line<AtomicU32>,
    owned: UnsafeCell<SegmentMemory>,
    #[cfg(loom)]
    accesses: Vec<loom::cell::UnsafeCell<()>>,
}

/// The memory of a segment. It belongs to the writer until the segment is sealed, and then to the thread that retires
/// the segment.
#[derive(Debug)]
struct SegmentMemory {
    buffer: Option<Buffer>,
    by_ref_at: Vec<u32>,
    by_ref_bytes: u64,
}

// SAFETY: readers reach the buffer only below `commit`, and the only writer reaches it only above `commit`. `owned`
// belongs to the writer until the writer is dropped. Then it belongs to the thread that retires the segment, and the
// `RETIRED` bit admits only one such thread.
unsafe impl Send for Segment {}
// SAFETY: the reasons given for `Send` hold for shared references, too.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates an empty segment, and returns its only writer.
    pub(crate) fn create(buffer: Buffer, first_seq: u64) -> SegmentWriter {
        let capacity = buffer.len() as u32;
        let base = buffer.base();
        let segment = Arc::new(Segment {
            first_seq,
            base,
            capacity,
            commit: AtomicU64::new(0),
            pins: Line(AtomicU32::new(0)),
            owned: UnsafeCell::new(SegmentMemory {
                buffer: Some(buffer),
                by_ref_at: Vec::new(),
                by_ref_bytes: 0,
            }),
            #[cfg(loom)]
            accesses: (0..capacity / 8).map(|_| loom::cell::UnsafeCell::new(())).collect(),
        });
        SegmentWriter { segment, base, capacity, written: Commit::default() }
    }

    /// Size of the segment's buffer in bytes. Payloads that are kept by reference do not count.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.capacity.into()
    }

    /// Prefetches the frame at `offset`, which is read as soon as the segment is pinned.
    #[inline(always)]
    pub(crate) fn prefetch(&self, offset: u32) {
        prefetch::for_read(self.base.wrapping_add(offset as usize));
    }

    /// The committed length of the segment.
    #[inline(always)]
    pub(crate) fn commit(&self) -> Commit {
        Commit::unpack(self.commit.load(COMMIT_LOAD))
    }

    /// Frees the buffer. Returns `false`, and frees nothing, while a read is in progress. Payloads that were kept by
    /// reference are moved to `payloads`. The caller must drop these payloads after it has unlocked the log, because
    /// their drop may run foreign code.
    pub(crate) fn retire(&self, payloads: &mut Vec<Bytes>) -> bool {
        debug_assert!(self.commit().sealed, "only a sealed segment is retired");
        if self.pins.0.compare_exchange(0, RETIRED, RETIRE, Ordering::Relaxed).is_err() {
            return self.pins.0.load(Ordering::Relaxed) & RETIRED != 0;
        }
        self.track_write(0, self.commit().bytes);
        // SAFETY: the exchange succeeds once, while no thread reads the buffer. After the exchange, no thread can begin
        // to read. The writer was consumed by `seal`.
        unsafe { (*self.owned.get()).free(self.base, payloads) };
        true
    }

    fn unpin(&self) {
        self.pins.0.fetch_sub(1, UNPIN);
    }

    #[inline(always)]
    fn track_read(&self, _from: u32, _to: u32) {
        #[cfg(loom)]
        self.accesses[_from as usize / 8.._to as usize / 8].iter().for_each(|cell| cell.with(|_| ()));
    }

    #[inline(always)]
    fn track_write(&self, _from: u32, _to: u32) {
        #[cfg(loom)]
        self.accesses[_from as usize / 8.._to as usize / 8].iter().for_each(|cell| cell.with_mut(|_| ()));
    }
}

impl SegmentMemory {
    /// # Safety
    /// No thread still reads or writes the buffer.
    unsafe fn free(&mut self, base: *mut u8, payloads: &mut Vec<Bytes>) {
        let Some(buffer) = self.buffer.take() else { return };
        for at in std::mem::take(&mut self.by_ref_at) {
            // SAFETY: `push_by_ref` wrote a `Bytes` at this offset, and each `Bytes` is taken once.
            payloads.push(unsafe { base.add(at as usize).cast::<Bytes>().read() });
        }
        buffer.budget().release(std::mem::take(&mut self.by_ref_bytes));
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the last reference is gone, so that no other thread uses the segment.
        unsafe { self.owned.get_mut().free(self.base, &mut Vec::new()) };
    }
}

/// The only writer of a segment. It is used only inside the log's lock.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    segment: Arc<Segment>,
    base: *mut u8,
    capacity: u32,
    written: Commit,
}

// SAFETY: the pointer points to the buffer of the segment, which the writer keeps alive.
unsafe impl Send for SegmentWriter {}

impl SegmentWriter {
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Number of bytes in the buffer that are still free.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        (self.capacity - self.written.bytes) as usize
    }

    /// The bytes and records that were written so far, whether they are committed or not.
    #[inline(always)]
    pub(crate) fn written(&self) -> Commit {
        self.written
    }

    /// Total size of the payloads that are kept by reference, bytes.
    pub(crate) fn by_ref_bytes(&self) -> u64 {
        // SAFETY: `owned` belongs to this writer while the writer exists.
        unsafe { (*self.segment.owned.get()).by_ref_bytes }
    }

    /// Lets `fill` write the next `bytes` bytes, which are `count` whole frames. Subscribers see the records only after
    /// [`commit`](SegmentWriter::commit).
    ///
    /// # Panics
    /// If there is not enough room.
    #[inline(always)]
    pub(crate) fn push(&mut self, bytes: usize, count: u32, fill: impl FnOnce(&mut [u8])) {
        assert!(bytes <= self.room(), "the log must make room first");
        self.segment.track_write(self.written.bytes, self.written.bytes + bytes as u32);
        // SAFETY: the range lies inside the buffer and above every committed length, where only this writer may access
        // it.
        let out =
            unsafe { std::slice::from_raw_parts_mut(self.base.add(self.written.bytes as usize), bytes) };
        fill(out);
        self.written.bytes += bytes as u32;
        self.written.count += count;
    }

    /// The number of bytes in the buffer that a frame takes if [`push_by_ref`](SegmentWriter::push_by_ref) writes it.
    pub(crate) fn by_ref_stride(encoded: FrameLayout) -> usize {
        padded(encoded.head_bytes()) + SLOT_BYTES
    }

    /// Writes a frame, but keeps its payload by reference. The caller has charged the payload to the budget; the charge
    /// is released when the segment is retired.
    #[inline(always)]
    pub(crate) fn push_by_ref(
        &mut self,
        meta: &RecordMeta<'_>,
        encoded: FrameLayout,
        append_ns: u64,
        payload: Bytes,
    ) {
        let slot_at = self.written.bytes as usize + padded(encoded.head_bytes());
        let payload_bytes = payload.len() as u64;
        self.push(SegmentWriter::by_ref_stride(encoded), 1, |out| {
            meta.encode_head(encoded, append_ns, FLAG_BY_REF, out);
        });
        // SAFETY: `push` has checked that the slot lies inside the buffer. The slot is 8-aligned, like frames and the
        // padded head. No other thread uses the bytes above the committed length. `owned` belongs to this writer.
        unsafe {
            self.base.add(slot_at).cast::<Bytes>().write(payload);
            let owned = &mut *self.segment.owned.get();
            owned.by_ref_at.push(slot_at as u32);
            owned.by_ref_bytes += payload_bytes;
        }
    }

    /// Prefetches the cache lines at `ahead_bytes` after the written bytes, to which a later record will be written.
    /// Otherwise, the next read-modify-write operation on the log's lock would wait for these cache lines. A larger
    /// distance does not help: the processors of subscribers prefetch, too, and take the lines back.
    #[inline(always)]
    pub(crate) fn prefetch(&self, ahead_bytes: usize) {
        prefetch::for_write(self.base.wrapping_add(self.written.bytes as usize + ahead_bytes));
    }

    /// Commits the frames up to `written`, an earlier written length.
    pub(crate) fn commit_to(&self, written: Commit) {
        debug_assert!(written.bytes <= self.written.bytes && !written.sealed);
        self.segment.commit.store(written.pack(), COMMIT_STORE);
    }

    /// Pins the segment for the store of a durable log, which may read all bytes that are written by now, committed or
    /// not. Must be called inside the log's lock.
    pub(crate) fn pin_written(&self) -> PinnedSegment {
        // This pin cannot fail, because a segment is not retired while it has a writer.
        self.segment.pins.0.fetch_add(1, PIN);
        PinnedSegment { segment: Arc::clone(&self.segment), length: self.written }
    }

    /// Whether any payload is kept by reference.
    pub(crate) fn has_by_ref(&self) -> bool {
        // SAFETY: `owned` belongs to this writer while the writer exists.
        unsafe { !(*self.segment.owned.get()).by_ref_at.is_empty() }
    }

    /// The frames that were written after the length `from`.
    pub(crate) fn frames_since(&self, from: Commit) -> SegmentFrames<'_> {
        let bytes = (self.written.bytes - from.bytes) as usize;
        // SAFETY: `push` has written the frames. Only this writer could change them, and the writer is borrowed.
        let rest = unsafe { std::slice::from_raw_parts(self.base.add(from.bytes as usize), bytes) };
        SegmentFrames { rest }
    }

    /// Removes the frames that were written after the length `from`.
    ///
    /// # Panics
    /// If some of them were committed.
    pub(crate) fn rollback(&mut self, from: Commit) {
        assert!(self.segment.commit().bytes <= from.bytes, "committed records must stay");
        // SAFETY: `owned` belongs to this writer while the writer exists.
        let owned = unsafe { &mut *self.segment.owned.get() };
        let mut by_ref_bytes = 0;
        while let Some(at) = owned.by_ref_at.pop_if(|at| *at >= from.bytes) {
            // SAFETY: `push_by_ref` wrote a `Bytes` at this offset. The list no longer contains the offset, so the
            // `Bytes` is dropped once.
            let payload = unsafe { self.base.add(at as usize).cast::<Bytes>().read() };
            by_ref_bytes += payload.len() as u64;
        }
        owned.by_ref_bytes -= by_ref_bytes;
        if let Some(buffer) = &owned.buffer {
            buffer.budget().release_nonzero(by_ref_bytes);
        }
        self.written = from;
    }

    /// Commits all frames that were written so far.
    #[inline(always)]
    pub(crate) fn commit(&self) {
        self.segment.commit.store(self.written.pack(), COMMIT_STORE);
    }

    /// Seals the segment at its committed length. Frames that are not committed are never visible.
    pub(crate) fn seal_committed(self) {
        let committed = Commit { sealed: true, ..self.segment.commit() };
        self.segment.commit.store(committed.pack(), COMMIT_STORE);
    }

    /// Commits all frames, and seals the segment.
    pub(crate) fn seal(mut self) {
        self.written.sealed = true;
        self.commit();
    }
}

/// A segment that is being read. Its bytes stay in place until this value is dropped.
#[derive(Debug)]
pub(crate) struct PinnedSegment {
    segment: Arc<Segment>,
    /// The length up to which this read may access the segment.
    length: Commit,
}

impl PinnedSegment {
    /// Pins the segment, so that it can be read. If its buffer was freed, returns the segment as the error.
    #[inline(always)]
    pub(crate) fn new(segment: Arc<Segment>) -> Result<PinnedSegment, Arc<Segment>> {
        if segment.pins.0.fetch_add(1, PIN) & RETIRED != 0 {
            segment.unpin();
            return Err(segment);
        }
        let length = segment.commit();
        Ok(PinnedSegment { segment, length })
    }

    /// Ends the read and returns the segment.
    #[inline(always)]
    pub(crate) fn release(self) -> Arc<Segment> {
        let this = ManuallyDrop::new(self);
        this.segment.unpin();
        // SAFETY: `this` is not dropped. The reference is therefore moved, not copied.
        unsafe { std::ptr::read(&this.segment) }
    }

    /// Sequence number of the first record.
    pub(crate) fn first_seq(&self) -> u64 {
        self.segment.first_seq
    }

    /// The committed length at the last check, or, for the store, the written length.
    #[inline(always)]
    pub(crate) fn length(&self) -> Commit {
        self.length
    }

    /// Loads the committed length again.
    #[inline(always)]
    pub(crate) fn refresh(&mut self) -> Commit {
        self.length = self.segment.commit();
        self.length
    }

    /// The bytes from `from` up to `length`.
    #[inline(always)]
    pub(crate) fn bytes(&self, from: u32) -> &[u8] {
        assert!(from <= self.length.bytes);
        self.segment.track_read(from, self.length.bytes);
        // SAFETY: the bytes are below a committed length that was loaded with Acquire, or below a written length that
        // was read inside the log's lock (`pin_written`). Those bytes never change, and the pin keeps them in place.
        unsafe {
            std::slice::from_raw_parts(
                self.segment.base.add(from as usize),
                (self.length.bytes - from) as usize,
            )
        }
    }

    /// The frames from `from` up to `length`.
    #[inline(always)]
    pub(crate) fn frames(&self, from: u32) -> SegmentFrames<'_> {
        SegmentFrames { rest: self.bytes(from) }
    }
}

/// An iterator over consecutive frames of a segment.
#[derive(Debug, Clone)]
pub(crate) struct SegmentFrames<'a> {
    rest: &'a [u8],
}

/// A frame and its bytes in a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentFrame<'a> {
    pub(crate) frame: Frame<'a>,
    /// The bytes that the frame takes in the segment, including padding.
    pub(crate) bytes: &'a [u8],
    /// The payload, if it is kept by reference.
    pub(crate) by_ref: Option<&'a Bytes>,
}

impl<'a> Iterator for SegmentFrames<'a> {
    type Item = SegmentFrame<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<SegmentFrame<'a>> {
        // The cache lines after the committed length are not prefetched, because they belong to the writer.
        if self.rest.len() > READ_AHEAD_BYTES + 128 {
            prefetch::for_read(self.rest.as_ptr().wrapping_add(READ_AHEAD_BYTES));
        }
        if self.rest.get(5)? & FLAG_BY_REF != 0 {
            return self.next_by_ref();
        }
        let (frame, stride) = Frame::split(self.rest)?;
        let (bytes, rest) = self.rest.split_at_checked(stride)?;
        self.rest = rest;
        Some(SegmentFrame { frame, bytes, by_ref: None })
    }
}

impl<'a> SegmentFrames<'a> {
    /// Creates an iterator over a single frame, which `bytes` contains.
    ///
    /// # Panics
    /// If the frame's payload is kept by reference.
    pub(crate) fn single(bytes: &'a [u8]) -> SegmentFrames<'a> {
        // A payload can be kept by reference only inside a segment.
        assert!(bytes.get(5).is_none_or(|flags| flags & FLAG_BY_REF == 0));
        SegmentFrames { rest: bytes }
    }

    /// The bytes of the frames that were not returned yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline(always)]
    fn next_by_ref(&mut self) -> Option<SegmentFrame<'a>> {
        let head = HEAD_BYTES + u16::from_le_bytes([self.rest[6], self.rest[7]]) as usize;
        let (bytes, rest) = self.rest.split_at_checked(padded(head) + SLOT_BYTES)?;
        // SAFETY: only `push_by_ref` sets the flag, and it has written a `Bytes` after the head. This iterator borrows
        // from a pin, which keeps the `Bytes` from being dropped.
        let payload: &'a Bytes = unsafe { &*bytes.as_ptr().add(padded(head)).cast::<Bytes>() };
        let frame = Frame::from_parts(&bytes[HEAD_BYTES..head], payload, bytes[5] & !FLAG_BY_REF);
        self.rest = rest;
        Some(SegmentFrame { frame, bytes, by_ref: Some(payload) })
    }
}

impl Drop for PinnedSegment {
    #[inline(always)]
    fn drop(&mut self) {
        self.segment.unpin();
    }
}
