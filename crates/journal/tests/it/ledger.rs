//! The expected log: the records that a test appended, and the last one acknowledged as synced.

use std::collections::BTreeMap;

use dunlin_journal::Position;

use crate::fixture::JournalEntry;

/// Everything appended to a log over all restarts.
#[derive(Debug, Default)]
pub struct Ledger {
    records: BTreeMap<Position, Vec<u8>>,
    /// The last position that was acknowledged as synced.
    synced: Option<Position>,
    /// Records before this position may be dropped.
    dropped_below: Position,
}

impl Ledger {
    pub fn appended(&mut self, at: Position, payload: Vec<u8>) {
        assert!(self.records.insert(at, payload).is_none(), "a position was given twice: {at}");
    }

    /// Removes the records of a refused append from the expected log.
    pub fn refused(&mut self, at: Position) {
        self.records.remove(&at);
    }

    pub fn synced(&mut self, through: Option<Position>) {
        assert!(through >= self.synced, "a sync went back from {:?} to {through:?}", self.synced);
        self.synced = through;
    }

    pub fn synced_through(&self) -> Option<Position> {
        self.synced
    }

    pub fn may_drop_below(&mut self, position: Position) {
        self.dropped_below = self.dropped_below.max(position);
    }

    /// Compares read records with appended ones, and removes those that a crash may lose.
    ///
    /// `excused` returns whether a synced record was reported lost.
    pub fn compare(&mut self, seen: &[JournalEntry], excused: impl Fn(Position) -> bool) {
        let mut kept = BTreeMap::new();
        let mut before = Position::default();
        for seen in seen {
            let JournalEntry::Record(at, payload) = seen else { continue };
            assert!(*at > before, "{at} comes after {before}");
            before = *at;
            assert_eq!(self.records.get(at), Some(payload), "what is read at {at} was never appended");
            kept.insert(*at, payload.clone());
        }
        for at in self.records.keys() {
            let owed = Some(*at) <= self.synced && *at >= self.dropped_below;
            assert!(!owed || kept.contains_key(at) || excused(*at), "{at} was synced and is gone");
        }
        self.records = kept;
    }
}
