//! A cache of history that was read from disk, for subscribers at the same position.
//!
//! If the cache exceeds its limit, the oldest segments are removed. A subscriber that needs a removed segment loads it
//! again. A segment that is in use is removed at the next load.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use dunlin_topic::{Budget, CheckedBatch, LoadedSegment};

use super::lock;

/// The largest amount of freed memory that is kept for reuse, bytes.
const IDLE_BYTES_MAX: usize = 4 << 20;

/// A cache of segments that were read from disk.
#[derive(Debug)]
pub(super) struct Cache {
    /// The memory budget of the cache, with limit `bytes_max`. It is separate from the node's budget, so that a
    /// subscriber of old records is never refused because the node's memory is used up.
    budget: Arc<Budget>,
    bytes_max: u64,
    kept: Mutex<LoadedSegments>,
}

#[derive(Debug, Default)]
struct LoadedSegments {
    segments: VecDeque<(usize, u32, LoadedSegment)>,
    bytes: u64,
    /// Segments above the limit that subscribers still use.
    lingering: Vec<LoadedSegment>,
}

impl Cache {
    pub(super) fn new(bytes_max: u64) -> Arc<Cache> {
        let budget = Budget::node(u64::MAX, IDLE_BYTES_MAX);
        Arc::new(Cache { budget, bytes_max, kept: Mutex::default() })
    }

    /// The cached segment of this log and epoch that contains this record.
    pub(super) fn get(&self, log: usize, epoch: u32, seq: u64) -> Option<LoadedSegment> {
        let kept = lock(&self.kept);
        let holds = |s: &LoadedSegment| (s.first_seq()..s.end_seq()).contains(&seq);
        let found = kept.segments.iter().find(|(of, e, s)| (*of, *e) == (log, epoch) && holds(s));
        found.map(|(_, _, segment)| segment.clone())
    }

    /// Adds a segment to the cache. Returns `None` if the budget has no room for it.
    pub(super) fn add(
        &self,
        log: usize,
        epoch: u32,
        first_seq: u64,
        run: CheckedBatch<'_>,
    ) -> Option<LoadedSegment> {
        let segment = LoadedSegment::new(&self.budget, first_seq, run).ok()?;
        let mut kept = lock(&self.kept);
        kept.bytes += segment.bytes();
        kept.segments.push_back((log, epoch, segment.clone()));
        while kept.bytes > self.bytes_max && kept.segments.len() > 1 {
            kept.give_up_oldest();
        }
        kept.lingering.retain(|segment| !segment.retire());
        Some(segment)
    }

    /// Removes all segments of a log.
    pub(super) fn forget(&self, log: usize) {
        let mut kept = lock(&self.kept);
        let (gone, left): (Vec<_>, Vec<_>) = kept.segments.drain(..).partition(|(of, ..)| *of == log);
        kept.segments = left.into();
        for (_, _, segment) in gone {
            kept.bytes -= segment.bytes();
            kept.lingering.push(segment);
        }
        kept.lingering.retain(|segment| !segment.retire());
    }
}

impl LoadedSegments {
    fn give_up_oldest(&mut self) {
        if let Some((_, _, segment)) = self.segments.pop_front() {
            self.bytes -= segment.bytes();
            self.lingering.push(segment);
        }
    }
}
