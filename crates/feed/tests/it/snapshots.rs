//! Tests that snapshots consist of the documented bytes, because later versions must still be able to read them.

use std::collections::BTreeMap;

use dunlin_feed::{BookEntry, OrderEntry, Side, make_reducer};
use dunlin_topic::Reducer;
use proptest::prelude::*;

use crate::any_bytes::try_states;
use crate::record::{RecordFrame, append, snapshot};

fn state(kind: &str) -> Box<dyn Reducer> {
    let mut reducer = make_reducer(kind, &BTreeMap::new()).unwrap();
    let mut payload = Vec::new();
    match kind {
        "book" => {
            for (side, price, size) in [(Side::Bid, 10, 1), (Side::Bid, 11, 2), (Side::Ask, 12, 3)] {
                BookEntry::Set { side, price, size }.encode(&mut payload);
            }
        }
        "orders" => {
            for (side, id, price) in
                [(Side::Bid, 7, 10), (Side::Bid, 5, 11), (Side::Bid, 3, 11), (Side::Ask, 1, 12)]
            {
                OrderEntry::Add { side, id, price, size: 2 }.encode(&mut payload);
            }
        }
        _ => {
            append(&mut *reducer, 1, &RecordFrame::keyed(b"b", b"x")).unwrap();
            append(&mut *reducer, 2, &RecordFrame::keyed(b"a", b"yz")).unwrap();
            return reducer;
        }
    }
    append(&mut *reducer, 1, &RecordFrame::new(&payload)).unwrap();
    reducer
}

/// Returns the bytes of a snapshot of this kind, as `docs/feeds.md` shows them, and the checksum of the state in the
/// snapshot.
fn golden(kind: &str) -> (Vec<u8>, u64) {
    let words = |head: [u32; 4], entries: &[i64]| {
        let head = head.iter().flat_map(|word| word.to_le_bytes());
        head.chain(entries.iter().flat_map(|word| word.to_le_bytes())).collect::<Vec<u8>>()
    };
    match kind {
        "book" => (words([0x0101, 2, 1, 0], &[11, 2, 10, 1, 12, 3]), 0xa640_630e_3f55_291f),
        "orders" => {
            (words([0x0102, 3, 1, 0], &[5, 11, 2, 3, 11, 2, 7, 10, 2, 1, 12, 2]), 0x7ad3_4136_32c8_52c7)
        }
        _ => {
            let mut bytes = words([0x0103, 2, 0, 0], &[]);
            bytes.extend_from_slice(b"\x01\0\0\0\x02\0\0\0ayz\x01\0\0\0\x01\0\0\0bx");
            (bytes, 0xe005_8cfd_7933_1f47)
        }
    }
}

#[test]
fn snapshot_encodings_and_checksums_do_not_change() {
    for kind in dunlin_feed::KINDS {
        let (bytes, checksum) = golden(kind);
        let mut state = state(kind);
        assert_eq!(snapshot(&mut *state), bytes, "{kind}");
        assert_eq!(state.checksum(), checksum, "{kind}");
        let mut restored = make_reducer(kind, &BTreeMap::new()).unwrap();
        restored.restore(9, &bytes).unwrap();
        assert_eq!(restored.checksum(), checksum, "{kind}");
    }
}

#[test]
fn damaged_snapshots_are_refused_and_leave_an_empty_state() {
    for kind in dunlin_feed::KINDS {
        let (bytes, _) = golden(kind);
        let mut reducer = state(kind);
        for cut in 0..bytes.len() {
            assert!(reducer.restore(9, &bytes[..cut]).is_err(), "{kind} cut at {cut}");
            assert_eq!(reducer.checksum(), 0);
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x80;
            if reducer.restore(9, &damaged).is_err() {
                assert_eq!(reducer.checksum(), 0, "{kind} damaged at {at}");
            }
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(reducer.restore(9, &longer).is_err(), "{kind} and one more byte");
    }
}

#[test]
fn snapshot_refusal_names_the_defect() {
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let (mut bytes, _) = golden("book");
        change(&mut bytes);
        make_reducer("book", &BTreeMap::new()).unwrap().restore(1, &bytes).unwrap_err().0
    };
    assert_eq!(refused(&|bytes| bytes[0] = 2), "the snapshot is of kind 2, not 1");
    assert_eq!(refused(&|bytes| bytes[1] = 2), "the snapshot has version 2; this build reads version 1");
    assert_eq!(
        refused(&|bytes| bytes.truncate(60)),
        "the snapshot has 60 bytes, but its header announces 64"
    );
    assert_eq!(refused(&|bytes| bytes[32] = 11), "entry 1 of the snapshot is out of order");
    assert_eq!(
        refused(&|bytes| bytes[24] = 0),
        "entry 1 of the snapshot is invalid: size 0 is not above zero"
    );
}

proptest! {
    #[test]
    fn arbitrary_snapshot_bytes_are_restored_or_refused(first in 0_u8..65, bytes in prop::collection::vec(prop_oneof![4 => Just(0_u8), 4 => 0..5_u8, 1 => any::<u8>()], 0..300)) {
        try_states(&[&[first], &bytes[..]].concat());
    }

    #[test]
    fn damaged_snapshots_are_refused_or_restore_a_valid_state(
        kind in 0..3_usize,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let (mut bytes, _) = golden(dunlin_feed::KINDS[kind]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        try_states(&[&[0], &bytes[..]].concat());
    }
}
