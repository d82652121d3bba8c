//! Tests that each reducer accepts or refuses arbitrary bytes, as records and as snapshots, without a panic. A fuzz
//! target runs the same code.

use std::collections::BTreeMap;

use dunlin_feed::{KINDS, make_reducer};
use dunlin_topic::Reducer;
use dunlin_topic::frame::{Frame, RecordMeta};

/// Tests all kinds of state with these bytes. If the first byte is 0, the other bytes are a snapshot. Otherwise, they
/// are the payloads of records, and the first byte is the length of each payload.
pub fn try_states(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    for kind in KINDS {
        let mut state = make_reducer(kind, &BTreeMap::new()).unwrap();
        match usize::from(*first) {
            0 => try_snapshot(&mut *state, rest),
            record_bytes => {
                for (seq, payload) in (1..).zip(rest.chunks(record_bytes)) {
                    try_record(&mut *state, seq, payload);
                }
                check_restored_copy(&mut *state, make_reducer(kind, &BTreeMap::new()).unwrap());
            }
        }
    }
}

/// Restores a snapshot from the bytes. If the state accepts the bytes, the next snapshot of the state must consist of
/// the same bytes. Otherwise, the state must be empty.
fn try_snapshot(state: &mut dyn Reducer, bytes: &[u8]) {
    if state.restore(1, bytes).is_ok() {
        assert_eq!(snapshot_bytes(state), bytes);
    } else {
        assert_eq!((state.checksum(), state.entries()), (0, 0));
    }
}

/// Checks that a record which passes the check can be applied, and that the check of a refused record leaves the state
/// unchanged.
fn try_record(state: &mut dyn Reducer, seq: u64, payload: &[u8]) {
    let key = payload.first().filter(|byte| **byte >= 8).map(std::slice::from_ref);
    let meta = RecordMeta { key, ..RecordMeta::default() };
    let encoded = meta.measure(payload.len()).unwrap();
    let mut bytes = vec![0; encoded.padded()];
    meta.encode(encoded, 1, payload, &mut bytes);
    let (frame, _) = Frame::split(&bytes).unwrap();
    let before = state.checksum();
    if state.check(&mut std::iter::once(frame)).is_ok() {
        state.apply(seq, &frame).unwrap();
    } else {
        assert_eq!(state.checksum(), before);
    }
}

fn check_restored_copy(state: &mut dyn Reducer, mut other: Box<dyn Reducer>) {
    let bytes = snapshot_bytes(state);
    other.restore(9, &bytes).unwrap();
    assert_eq!((other.checksum(), other.entries()), (state.checksum(), state.entries()));
}

fn snapshot_bytes(state: &mut dyn Reducer) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.freeze().write(&mut bytes);
    bytes
}
