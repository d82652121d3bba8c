//! A loom model of segments: loom tries every interleaving of the threads, and every old value that a load may return
//! under the memory model.
//!
//! `cargo xtask race` runs this model. The model covers the commit word, the pins, and the buffer in groups of 8 bytes:
//! module `segment` reports which bytes it reads or writes. The model fails if bytes may be read before they are
//! written, or if bytes may be written or used again before the last read has ended.
//!
//! A buffer has 64 bytes, which is enough for two records of 24 bytes. Loom's mutex replaces the log's lock, because
//! the lock has a model of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use dunlin_frame::RecordMeta;
use loom::{sync::Mutex, thread};

use super::{BUFFER_BYTES_MIN, Buffer, PinnedSegment, Segment, SegmentWriter};
use crate::memory::MemoryBudget;

/// A budget whose pool keeps every freed buffer, and returns the buffer that was freed last.
fn budget() -> Arc<MemoryBudget> {
    MemoryBudget::node(1 << 20, 1 << 20)
}

fn segment(budget: &Arc<MemoryBudget>, first_seq: u64) -> SegmentWriter {
    Segment::create(Buffer::new(budget, BUFFER_BYTES_MIN).unwrap(), first_seq)
}

fn push(writer: &mut SegmentWriter, number: u64) {
    let encoded = RecordMeta::default().measure(8).unwrap();
    let payload = number.to_le_bytes();
    writer.push(encoded.padded(), 1, |out| RecordMeta::default().encode(encoded, 0, &payload, out));
}

/// The numbers that the records of the segment contain, up to the length at the last check.
fn numbers(pinned: &PinnedSegment) -> Vec<u64> {
    let number = |payload: &[u8]| u64::from_le_bytes(payload.try_into().unwrap());
    pinned.frames(0).map(|entry| number(&entry.frame.payload()[..8])).collect()
}

#[test]
fn reader_sees_only_whole_records_during_a_commit() {
    loom::model(|| {
        let mut writer = segment(&budget(), 1);
        let shared = Arc::clone(writer.segment());
        let reader = thread::spawn(move || {
            let mut pinned = PinnedSegment::new(shared).unwrap();
            let mut before = pinned.length();
            for _ in 0..2 {
                let seen = pinned.refresh();
                assert!(
                    seen.count >= before.count && seen.bytes >= before.bytes,
                    "a committed record stays committed"
                );
                assert_eq!(numbers(&pinned), (1..=u64::from(seen.count)).collect::<Vec<_>>());
                before = seen;
            }
        });
        for number in 1..=2 {
            push(&mut writer, number);
            writer.commit();
        }
        writer.seal();
        reader.join().unwrap();
    });
}

#[test]
fn reader_of_a_sealed_segment_sees_all_its_records() {
    loom::model(|| {
        let mut writer = segment(&budget(), 1);
        let shared = Arc::clone(writer.segment());
        let reader = thread::spawn(move || {
            let pinned = PinnedSegment::new(shared).unwrap();
            if pinned.length().sealed {
                assert_eq!(numbers(&pinned), [1, 2]);
            }
        });
        push(&mut writer, 1);
        writer.commit();
        push(&mut writer, 2);
        writer.seal();
        reader.join().unwrap();
    });
}

/// Lets `readers` threads pin a segment while another thread retires the segment and uses its buffer again.
fn buffer_changes_hands(readers: usize) {
    loom::model(move || {
        let budget = budget();
        let mut writer = segment(&budget, 1);
        push(&mut writer, 1);
        push(&mut writer, 2);
        let old = Arc::clone(writer.segment());
        writer.seal();
        let reader_threads: Vec<_> = (0..readers)
            .map(|_| {
                let shared = Arc::clone(&old);
                thread::spawn(move || match PinnedSegment::new(shared) {
                    Ok(mut pinned) => {
                        pinned.refresh();
                        assert_eq!(numbers(&pinned), [1, 2]);
                        let loose = pinned.release();
                        assert!(loose.commit().sealed);
                    }
                    Err(retired) => assert!(retired.commit().sealed, "only the buffer is gone"),
                })
            })
            .collect();
        let retired = old.retire(&mut Vec::new());
        let mut writer = segment(&budget, 3);
        assert_eq!(writer.base == old.base, retired, "the buffer is reused once no cursor reads it");
        push(&mut writer, 77);
        push(&mut writer, 78);
        writer.seal();
        reader_threads.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(old.retire(&mut Vec::new()), "no cursor reads it any more");
    });
}

#[test]
fn buffer_is_reused_only_after_its_reader_has_left() {
    buffer_changes_hands(1);
}

#[test]
fn buffer_is_reused_only_after_both_readers_have_left() {
    buffer_changes_hands(2);
}

#[test]
fn reader_crosses_from_a_sealed_segment_to_the_next_segment() {
    loom::model(|| {
        let budget = budget();
        let mut first = segment(&budget, 1);
        let start = Arc::clone(first.segment());
        let chain = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&chain);
        let reader = thread::spawn(move || {
            let pinned = PinnedSegment::new(start).unwrap();
            let mut seen = numbers(&pinned);
            if pinned.length().sealed {
                let next: Arc<Segment> = Arc::clone(&chain.lock().unwrap()[0]);
                assert_eq!(next.first_seq, seen.len() as u64 + 1);
                seen.extend(numbers(&PinnedSegment::new(next).unwrap()));
            }
            assert!(seen.iter().copied().eq(1..=seen.len() as u64), "{seen:?}");
        });
        push(&mut first, 1);
        first.commit();
        {
            // The thread does what a log does inside its lock: it seals a segment, creates the next one, writes to it
            // and commits.
            let mut chain = log.lock().unwrap();
            first.seal();
            let mut second = segment(&budget, 2);
            push(&mut second, 2);
            second.commit();
            chain.push(Arc::clone(second.segment()));
            second.seal();
        }
        reader.join().unwrap();
    });
}

/// The owner of a payload, which counts how often the payload is freed.
struct CountedPayload(Arc<AtomicUsize>);

impl AsRef<[u8]> for CountedPayload {
    fn as_ref(&self) -> &[u8] {
        b"by reference"
    }
}

impl Drop for CountedPayload {
    fn drop(&mut self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn shared_payload_is_freed_once_and_never_while_it_is_read() {
    loom::model(|| {
        let freed = Arc::new(AtomicUsize::new(0));
        let count = |freed: &AtomicUsize| freed.load(std::sync::atomic::Ordering::SeqCst);
        let budget = budget();
        let mut writer = segment(&budget, 1);
        let payload = Bytes::from_owner(CountedPayload(Arc::clone(&freed)));
        let encoded = RecordMeta::default().measure(payload.len()).unwrap();
        budget.charge(payload.len() as u64).unwrap();
        writer.push_by_ref(&RecordMeta::default(), encoded, 0, payload);
        let old = Arc::clone(writer.segment());
        writer.seal();
        let (shared, watched) = (Arc::clone(&old), Arc::clone(&freed));
        let reader = thread::spawn(move || {
            if let Ok(mut pinned) = PinnedSegment::new(shared) {
                pinned.refresh();
                let entry = pinned.frames(0).next().unwrap();
                assert_eq!(entry.frame.payload(), b"by reference");
                assert_eq!(count(&watched), 0);
            }
        });
        let retired = old.retire(&mut Vec::new());
        assert_eq!(count(&freed), usize::from(retired));
        reader.join().unwrap();
        // Whether the segment is retired or only dropped, the payload must be freed once, and nothing may stay charged
        // to the budget.
        drop(old);
        assert_eq!((count(&freed), budget.used()), (1, 0));
    });
}
