//! Keeps the expected content of a log: the records that a test has appended, and the last record that was acknowledged
//! as synced.

use std::collections::BTreeMap;

use dunlin_journal::Position;

use crate::fixture::JournalEntry;

/// All records that a test has appended to a log, before and after restarts.
#[derive(Debug, Default)]
pub struct AppendedRecords {
    records: BTreeMap<Position, Vec<u8>>,
    /// The position of the last record that was acknowledged as synced.
    synced: Option<Position>,
    /// Records before this position may be dropped.
    dropped_below: Position,
}

impl AppendedRecords {
    pub fn record_append(&mut self, at: Position, payload: Vec<u8>) {
        assert!(self.records.insert(at, payload).is_none(), "a position was assigned twice: {at}");
    }

    pub fn remove_refused(&mut self, at: Position) {
        self.records.remove(&at);
    }

    pub fn record_sync(&mut self, through: Option<Position>) {
        assert!(through >= self.synced, "a sync went back from {:?} to {through:?}", self.synced);
        self.synced = through;
    }

    pub fn synced_through(&self) -> Option<Position> {
        self.synced
    }

    pub fn may_drop_below(&mut self, position: Position) {
        self.dropped_below = self.dropped_below.max(position);
    }

    /// Checks that all records in `seen` were appended, and that no synced record is missing. From then on, expects
    /// only the records in `seen`, because a crash may have lost the others.
    ///
    /// `is_reported_lost` returns whether a missing record was reported as lost.
    pub fn compare(&mut self, seen: &[JournalEntry], is_reported_lost: impl Fn(Position) -> bool) {
        let mut kept = BTreeMap::new();
        let mut before = Position::default();
        for entry in seen {
            let JournalEntry::Record(at, payload) = entry else { continue };
            assert!(*at > before, "{at} comes after {before}");
            before = *at;
            assert_eq!(self.records.get(at), Some(payload), "the record read at {at} was never appended");
            kept.insert(*at, payload.clone());
        }
        for at in self.records.keys() {
            let must_exist = Some(*at) <= self.synced && *at >= self.dropped_below;
            assert!(
                !must_exist || kept.contains_key(at) || is_reported_lost(*at),
                "{at} was synced and is gone"
            );
        }
        self.records = kept;
    }
}
