//! An order book that consists of price levels (L2).
//!
//! Invariants:
//! - The same records give the same levels and the same checksum in every process, whether the records are applied one
//!   by one or merged into one record.
//! - A book whose best bid exceeds its best ask (crossed) or equals it (locked) stays so until a record changes it. The
//!   book counts how often it becomes crossed or locked, but does not refuse such records.
//! - Without the option `max_depth`, the book keeps all levels; the option `depth` limits only how many levels a view
//!   shows. With `max_depth`, the book keeps only the best `max_depth` levels of each side.
//!
//! A side has at most [`FeedLimits::levels_max`] levels. For each side, the book remembers as many removals as the side
//! has levels, but at least [`FeedLimits::removals_min`] and at most [`FeedLimits::removals_max`].

mod entry;
mod frozen;

use std::sync::Arc;

use dunlin_topic::{Frame, FrozenState, Reducer, ReducerError};

use crate::checksum;
use crate::entry_error::{EntryError, for_each_entry};
use crate::ladder::{self, Ladder};
use crate::limits::FeedLimits;
use crate::removals::Removals;
use crate::scale::Scale;
use crate::side::Side;
use crate::snapshot::{self, SnapshotError, StateKind};
use crate::view::{self, BidAskRelation, Crossings, PriceLevel, PriceLevels};

pub use entry::{BOOK_ENTRY_BYTES, BookEntry};

/// An order book of price levels: the total size at each price, for both sides.
#[derive(Debug)]
pub struct Book {
    scale: Scale,
    limits: FeedLimits,
    /// The two sides, bids first. A [`Side`] is the index of its half, so that no branch is needed.
    halves: [HalfBook; 2],
    checksum: u64,
    touch: BidAskRelation,
    crossings: Crossings,
}

#[derive(Debug, Default)]
struct HalfBook {
    /// The total size of each level. The key follows from the level's price.
    ladder: Ladder<i64>,
    /// The keys of recently removed levels.
    removals: Removals<i64>,
    /// The sequence number of the last record that cleared the side.
    cleared: u64,
}

/// An upper bound for the number of levels that one side has after the entries of an append that were checked so far.
/// The bound is the sum of both fields.
struct LevelCount {
    /// Number of levels that the side had before the append; 0 if an entry clears the side.
    kept: usize,
    /// Number of levels that the entries may add. A level that is set twice may count twice.
    added: usize,
}

impl Book {
    /// Creates an empty book whose prices and sizes have this scale, with the default limits.
    pub fn new(scale: Scale) -> Book {
        Book::with_limits(scale, FeedLimits::default())
    }

    /// Creates an empty book whose prices and sizes have this scale, with the given limits.
    pub fn with_limits(scale: Scale, limits: FeedLimits) -> Book {
        Book {
            scale,
            limits,
            halves: Default::default(),
            checksum: 0,
            touch: BidAskRelation::Open,
            crossings: Crossings::default(),
        }
    }

    /// Applies the payload of record `seq`. After an error, the content of the book is undefined until a snapshot is
    /// restored.
    pub fn apply_payload(&mut self, seq: u64, payload: &[u8]) -> Result<(), ReducerError> {
        for_each_entry(1, payload, |entry| self.apply_entry(seq, &BookEntry::decode(entry)?))?;
        if self.scale.max_depth > 0 {
            self.drop_beyond_depth(seq);
        }
        let touch = self.current_touch();
        self.crossings.count(self.touch, touch);
        self.touch = touch;
        Ok(())
    }

    #[inline(always)]
    fn apply_entry(&mut self, seq: u64, entry: &BookEntry) -> Result<(), EntryError> {
        match *entry {
            BookEntry::Set { side, price, size } => {
                self.scale.check_price(price)?;
                self.scale.check_size(size)?;
                self.set(side, price, size, seq);
            }
            BookEntry::Remove { side, price } => {
                self.scale.check_price(price)?;
                self.remove(side, price, seq);
            }
            BookEntry::Clear { side } => self.clear(side, seq),
        }
        Ok(())
    }

    fn set(&mut self, side: Side, price: i64, size: i64, seq: u64) {
        let half = &mut self.halves[side as usize];
        let level_size = half.ladder.get_or_insert(ladder::key(side, price), seq);
        let before = std::mem::replace(level_size, size);
        if before != 0 {
            self.checksum = self.checksum.wrapping_sub(checksum::level(side, price, before));
        }
        self.checksum = self.checksum.wrapping_add(checksum::level(side, price, size));
    }

    fn remove(&mut self, side: Side, price: i64, seq: u64) {
        let half = &mut self.halves[side as usize];
        let key = ladder::key(side, price);
        if let Some(size) = half.ladder.remove(key) {
            let max = self.limits.removals(half.ladder.len());
            half.removals.push(seq, key, max);
            self.checksum = self.checksum.wrapping_sub(checksum::level(side, price, size));
        }
    }

    /// Removes the worst levels of each side until at most `max_depth` levels are left.
    fn drop_beyond_depth(&mut self, seq: u64) {
        for side in Side::BOTH {
            while self.half(side).ladder.len() > self.scale.max_depth as usize
                && let Some(key) = self.half(side).ladder.worst_key()
            {
                self.remove(side, ladder::key(side, key), seq);
            }
        }
    }

    fn clear(&mut self, side: Side, seq: u64) {
        let half = &mut self.halves[side as usize];
        for (key, size) in half.ladder.iter() {
            self.checksum = self.checksum.wrapping_sub(checksum::level(side, ladder::key(side, key), *size));
        }
        half.ladder.clear();
        half.cleared = seq;
    }

    /// Checks that a side may have this many levels.
    fn check_room(&self, side: Side, levels: usize) -> Result<(), EntryError> {
        let levels_max = self.limits.levels_max;
        if levels > levels_max as usize {
            return Err(EntryError::TooManyLevels { side, levels_max });
        }
        Ok(())
    }

    /// Whether the side has a level at this price. The side has `kept` levels. If this is at most half of the limit,
    /// the side is not searched, and the result is `false`. The caller then counts the level as a new one.
    fn has_level_near_limit(&self, side: Side, price: i64, kept: usize) -> bool {
        kept > self.limits.levels_max as usize / 2
            && self.half(side).ladder.get(ladder::key(side, price)).is_some()
    }

    fn check_entry(&self, entry: &BookEntry, counts: &mut [LevelCount; 2]) -> Result<(), EntryError> {
        match *entry {
            BookEntry::Set { side, price, size } => {
                self.scale.check_price(price)?;
                self.scale.check_size(size)?;
                let count = &mut counts[side as usize];
                count.added += usize::from(!self.has_level_near_limit(side, price, count.kept));
                self.check_room(side, count.kept + count.added)
            }
            BookEntry::Remove { price, .. } => Ok(self.scale.check_price(price)?),
            BookEntry::Clear { side } => {
                counts[side as usize] = LevelCount { kept: 0, added: 0 };
                Ok(())
            }
        }
    }

    #[inline(always)]
    fn current_touch(&self) -> BidAskRelation {
        let [bids, asks] = &self.halves;
        view::touch(bids.ladder.best_key(), asks.ladder.best_key())
    }

    fn half(&self, side: Side) -> &HalfBook {
        &self.halves[side as usize]
    }

    fn read(&mut self, seq: u64, bytes: &[u8]) -> Result<(), SnapshotError> {
        let halves = snapshot::read_entries::<2>(bytes, StateKind::Book)?;
        let bids = halves[0].len();
        for (side, levels) in Side::BOTH.into_iter().zip(halves) {
            let first = if side == Side::Bid { 1 } else { 1 + bids };
            let at_first = |error| SnapshotError::Entry { entry: first, error };
            self.check_room(side, levels.len()).map_err(at_first)?;
            // The levels are added from the worst to the best, because each page of the ladder is then written only
            // once.
            for (index, words) in levels.iter().enumerate().rev() {
                let [price, size] = words.map(i64::from_le_bytes);
                self.push_best(seq, side, price, size, first + index)?;
            }
        }
        Ok(())
    }

    fn push_best(
        &mut self,
        seq: u64,
        side: Side,
        price: i64,
        size: i64,
        entry: usize,
    ) -> Result<(), SnapshotError> {
        let checked = self.scale.check_price(price).and_then(|()| self.scale.check_size(size));
        checked.map_err(|error| SnapshotError::Entry { entry, error: error.into() })?;
        let (key, ladder) = (ladder::key(side, price), &mut self.halves[side as usize].ladder);
        if key <= ladder.best_key() {
            return Err(SnapshotError::Order { entry });
        }
        ladder.push_best(key, seq, size);
        self.checksum = self.checksum.wrapping_add(checksum::level(side, price, size));
        Ok(())
    }

    fn reset(&mut self, seq: u64) {
        *self = Book::with_limits(self.scale, self.limits);
        for half in &mut self.halves {
            half.removals.discard_through(seq);
            half.cleared = seq;
        }
    }

    /// Appends to `payload` the entries for all changes of one side since record `seq`. Returns `false` if the book
    /// does not remember all of these changes.
    fn half_changes(&self, side: Side, seq: u64, payload: &mut Vec<u8>) -> bool {
        let half = self.half(side);
        if half.cleared > seq {
            BookEntry::Clear { side }.encode(payload);
        } else {
            let Some(removed) = half.removals.since(seq) else { return false };
            let mut absent: Vec<i64> =
                removed.copied().filter(|key| half.ladder.get(*key).is_none()).collect();
            absent.sort_unstable();
            absent.dedup();
            for key in absent {
                BookEntry::Remove { side, price: ladder::key(side, key) }.encode(payload);
            }
        }
        for (key, size) in half.ladder.changed_since(seq) {
            BookEntry::Set { side, price: ladder::key(side, key), size: *size }.encode(payload);
        }
        true
    }
}

impl Reducer for Book {
    fn check(&self, frames: &mut dyn Iterator<Item = Frame<'_>>) -> Result<(), ReducerError> {
        let mut counts = Side::BOTH.map(|side| LevelCount { kept: self.half(side).ladder.len(), added: 0 });
        for (record, frame) in (1..).zip(frames) {
            if frame.payload().is_empty() {
                return Err(EntryError::Empty.at(record, 1));
            }
            for_each_entry(record, frame.payload(), |entry| {
                self.check_entry(&BookEntry::decode(entry)?, &mut counts)
            })?;
        }
        Ok(())
    }

    fn apply(&mut self, seq: u64, frame: &Frame<'_>) -> Result<(), ReducerError> {
        self.apply_payload(seq, frame.payload())
    }

    fn freeze(&mut self) -> Arc<dyn FrozenState> {
        Arc::new(frozen::FrozenBook::new(self.halves.each_mut().map(|half| half.ladder.freeze())))
    }

    fn restore(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), ReducerError> {
        self.reset(seq);
        let read = self.read(seq, snapshot);
        if read.is_err() {
            self.reset(seq);
        }
        self.touch = self.current_touch();
        Ok(read?)
    }

    fn checksum(&self) -> u64 {
        self.checksum
    }

    fn changes_since(&self, seq: u64, payload: &mut Vec<u8>) -> bool {
        let start = payload.len();
        let complete = Side::BOTH.into_iter().all(|side| self.half_changes(side, seq, payload));
        if !complete {
            payload.truncate(start);
        }
        complete && snapshot::keep_if_small(payload, start, self.snapshot_bytes())
    }

    fn snapshot_bytes(&self) -> usize {
        snapshot::HEAD_BYTES + 16 * self.halves.iter().map(|half| half.ladder.len()).sum::<usize>()
    }

    fn bytes(&self) -> u64 {
        let halves = self.halves.iter().map(|half| half.ladder.bytes() + half.removals.bytes());
        size_of::<Book>() as u64 + halves.sum::<u64>()
    }

    fn entries(&self) -> u64 {
        self.halves.iter().map(|half| half.ladder.len() as u64).sum()
    }
}

impl PriceLevels for Book {
    fn scale(&self) -> &Scale {
        &self.scale
    }

    fn best(&self, side: Side) -> Option<PriceLevel> {
        self.levels(side).next()
    }

    fn level(&self, side: Side, price: i64) -> Option<PriceLevel> {
        let size = *self.half(side).ladder.get(ladder::key(side, price))?;
        Some(PriceLevel { price, size })
    }

    fn level_count(&self, side: Side) -> usize {
        self.half(side).ladder.len()
    }

    fn levels(&self, side: Side) -> Box<dyn Iterator<Item = PriceLevel> + '_> {
        let level = move |(key, size): (i64, &i64)| PriceLevel { price: ladder::key(side, key), size: *size };
        Box::new(self.half(side).ladder.iter().map(level))
    }

    fn touch(&self) -> BidAskRelation {
        self.touch
    }

    fn crossings(&self) -> Crossings {
        self.crossings
    }
}
