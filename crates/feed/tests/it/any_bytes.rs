//! Any bytes as records and as snapshots are accepted or refused, without a panic. The fuzz target runs the
//! same code.

use std::collections::BTreeMap;

use dunlin_feed::{KINDS, make_reducer};
use dunlin_topic::Reducer;
use dunlin_topic::frame::{Frame, RecordMeta};

/// The first byte selects the meaning of the other bytes: 0 for a snapshot, otherwise the size of each record, bytes.
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

/// Checks that an accepted snapshot equals the snapshot that the state then writes.
fn try_snapshot(state: &mut dyn Reducer, bytes: &[u8]) {
    if state.restore(1, bytes).is_ok() {
        assert_eq!(snapshot_bytes(state), bytes);
    } else {
        assert_eq!((state.checksum(), state.entries()), (0, 0));
    }
}

/// Checks that an accepted record can be applied, and that a refused record changes nothing.
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
