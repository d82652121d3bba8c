//! Cuts a sequence of records after every record. A copy of the state at a cut must reach the final state in two ways:
//! through the remaining records, and through one record that merges them.

use std::sync::Arc;

use dunlin_topic::{FrozenState, Reducer};

use crate::record::{RecordFrame, snapshot};

/// A reducer may send a snapshot instead of a merged record only if the snapshot at the cut and the final snapshot
/// together have more bytes than this.
const MERGED_BYTES_FREE: usize = 2 << 10;

/// A cut: the frozen state after record `seq`, with the bytes of its snapshot and its checksum.
pub struct StateCheckpoint {
    pub seq: u64,
    frozen: Arc<dyn FrozenState>,
    pub bytes: Vec<u8>,
    checksum: u64,
}

impl StateCheckpoint {
    pub fn of(reducer: &mut dyn Reducer, seq: u64) -> StateCheckpoint {
        let (frozen, mut bytes) = (reducer.freeze(), Vec::new());
        frozen.write(&mut bytes);
        assert_eq!(reducer.snapshot_bytes(), bytes.len());
        StateCheckpoint { seq, frozen, bytes, checksum: reducer.checksum() }
    }
}

/// Applies all records, numbered from 1. For every cut, checks that a copy restored from the cut's snapshot reaches the
/// final state, both through the remaining records and through one merged record.
pub fn check_every_way_to_catch_up(new: impl Fn() -> Box<dyn Reducer>, records: &[RecordFrame]) {
    let mut reducer = new();
    let mut cuts = Vec::new();
    for seq in 0..=records.len() as u64 {
        if seq > 0 {
            reducer.apply(seq, &records[seq as usize - 1].frame()).unwrap();
        }
        cuts.push(StateCheckpoint::of(&mut *reducer, seq));
    }
    for cut in &cuts {
        check_frozen_state_is_unchanged(cut);
        let restored = restore_and_resume(&new, cut, &cuts, records);
        catch_up_by_changes(&new, &*reducer, restored, cut, &cuts);
    }
}

pub fn check_frozen_state_is_unchanged(cut: &StateCheckpoint) {
    let mut later = Vec::new();
    cut.frozen.write(&mut later);
    assert_eq!(later, cut.bytes, "a state frozen at {} changed afterwards", cut.seq);
}

/// Restores the snapshot of a cut and applies the remaining records. After each record, the state must equal the state
/// of the next cut. Returns a second copy that was restored from the same snapshot, without the remaining records.
fn restore_and_resume(
    new: impl Fn() -> Box<dyn Reducer>,
    cut: &StateCheckpoint,
    cuts: &[StateCheckpoint],
    records: &[RecordFrame],
) -> Box<dyn Reducer> {
    let mut reader = new();
    reader.restore(cut.seq, &cut.bytes).unwrap();
    check_equals_cut(&mut *reader, cut, "restored");
    for seq in cut.seq + 1..cuts.len() as u64 {
        reader.apply(seq, &records[seq as usize - 1].frame()).unwrap();
        check_equals_cut(&mut *reader, &cuts[seq as usize], "restored and resumed");
    }
    let mut restored = new();
    restored.restore(cut.seq, &cut.bytes).unwrap();
    restored
}

/// Applies to `reader`, which was restored at `cut`, one record that merges all later changes. The result must equal
/// the last cut.
fn catch_up_by_changes(
    new: impl Fn() -> Box<dyn Reducer>,
    owner: &dyn Reducer,
    mut reader: Box<dyn Reducer>,
    cut: &StateCheckpoint,
    cuts: &[StateCheckpoint],
) {
    let last = &cuts[cuts.len() - 1];
    let mut payload = b"before".to_vec();
    if !owner.changes_since(cut.seq, &mut payload) {
        assert_eq!(payload, b"before");
        assert!(
            cut.bytes.len() + last.bytes.len() > MERGED_BYTES_FREE,
            "the changes since {} are known, and worth it",
            cut.seq
        );
        return;
    }
    let merged = RecordFrame::new(payload.strip_prefix(b"before").unwrap());
    reader.apply(last.seq, &merged.frame()).unwrap();
    check_equals_cut(&mut *reader, last, "caught up");
    // The state to which the merged record was applied must also be able to merge these changes for other replicas.
    let mut payload = Vec::new();
    if reader.changes_since(cut.seq, &mut payload) {
        let mut third = new();
        third.restore(cut.seq, &cut.bytes).unwrap();
        third.apply(last.seq, &RecordFrame::new(&payload).frame()).unwrap();
        check_equals_cut(&mut *third, last, "caught up by a reader");
    }
}

pub fn check_equals_cut(reducer: &mut dyn Reducer, cut: &StateCheckpoint, way: &str) {
    assert_eq!(snapshot(reducer), cut.bytes, "{way} to {}", cut.seq);
    assert_eq!(reducer.checksum(), cut.checksum, "{way} to {}", cut.seq);
}
