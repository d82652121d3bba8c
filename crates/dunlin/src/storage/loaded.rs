//! A cache of segments that were read from disk, for subscribers that read the same part of the history.
//!
//! If the cache exceeds its limit, the oldest segments are removed from it. A subscriber that needs a removed segment
//! reads it from disk again. If a removed segment is still being read, its memory is freed later, when another segment
//! is added or a log is removed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use dunlin_topic::{CheckedBatch, LoadedSegment, MemoryBudget};

use super::lock;

/// The maximum amount of freed memory that the cache keeps for reuse, bytes.
const IDLE_BYTES_MAX: usize = 4 << 20;

/// A cache of segments that were read from disk.
#[derive(Debug)]
pub(super) struct Cache {
    /// The memory budget that is charged for segments; it has no limit. The budget is separate from the node's, so that
    /// a subscriber of old records is never refused because the node's memory is used up.
    budget: Arc<MemoryBudget>,
    bytes_max: u64,
    loaded: Mutex<LoadedSegments>,
}

#[derive(Debug, Default)]
struct LoadedSegments {
    segments: VecDeque<(usize, u32, LoadedSegment)>,
    bytes: u64,
    /// Segments that were removed from the cache, but may still be in use.
    in_use: Vec<LoadedSegment>,
}

impl Cache {
    pub(super) fn new(bytes_max: u64) -> Arc<Cache> {
        let budget = MemoryBudget::node(u64::MAX, IDLE_BYTES_MAX);
        Arc::new(Cache { budget, bytes_max, loaded: Mutex::default() })
    }

    /// Returns the cached segment that contains the record `seq` of this log and epoch, if there is one.
    pub(super) fn get(&self, log: usize, epoch: u32, seq: u64) -> Option<LoadedSegment> {
        let loaded = lock(&self.loaded);
        let holds = |segment: &LoadedSegment| (segment.first_seq()..segment.end_seq()).contains(&seq);
        let found = loaded
            .segments
            .iter()
            .find(|(of_log, of_epoch, segment)| (*of_log, *of_epoch) == (log, epoch) && holds(segment));
        found.map(|(_, _, segment)| segment.clone())
    }

    /// Makes a segment of the batch and adds it to the cache. Returns `None` if there is no memory for the segment.
    pub(super) fn add(
        &self,
        log: usize,
        epoch: u32,
        first_seq: u64,
        batch: CheckedBatch<'_>,
    ) -> Option<LoadedSegment> {
        let segment = LoadedSegment::new(&self.budget, first_seq, batch).ok()?;
        let mut loaded = lock(&self.loaded);
        loaded.bytes += segment.bytes();
        loaded.segments.push_back((log, epoch, segment.clone()));
        while loaded.bytes > self.bytes_max && loaded.segments.len() > 1 {
            loaded.evict_oldest();
        }
        loaded.in_use.retain(|segment| !segment.retire());
        Some(segment)
    }

    pub(super) fn remove_log(&self, log: usize) {
        let mut loaded = lock(&self.loaded);
        let (removed, remaining): (Vec<_>, Vec<_>) =
            loaded.segments.drain(..).partition(|(of_log, ..)| *of_log == log);
        loaded.segments = remaining.into();
        for (_, _, segment) in removed {
            loaded.bytes -= segment.bytes();
            loaded.in_use.push(segment);
        }
        loaded.in_use.retain(|segment| !segment.retire());
    }
}

impl LoadedSegments {
    fn evict_oldest(&mut self) {
        if let Some((_, _, segment)) = self.segments.pop_front() {
            self.bytes -= segment.bytes();
            self.in_use.push(segment);
        }
    }
}
