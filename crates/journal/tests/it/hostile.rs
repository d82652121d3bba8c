//! Tests that files with arbitrary content are either read or refused, without a panic.

use proptest::prelude::*;

use crate::any_bytes::try_log;

/// Bytes that resemble a block, with plausible numbers in the header and nearly valid frames.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let frame = prop::collection::vec(any::<u8>(), 0..40)
        .prop_map(|payload| crate::fixture::frames(1, 1, 1, payload.len()));
    let numbers = (0_u64..16, 0_u32..4, 0_u32..200, any::<u8>(), 0_u8..7);
    (prop::collection::vec(frame, 0..4), numbers, any::<bool>()).prop_map(|(frames, numbers, exact)| {
        let (first_seq, count, synced, wrong, kind) = numbers;
        let mut body = frames.concat();
        if kind > 1 && exact {
            body = vec![wrong & 1; 40];
        }
        let count = if exact { frames.len() as u32 } else { count };
        let mut out = vec![0; 48];
        out[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
        out[8] = if exact && kind == 0 { 1 } else { kind };
        out[12] = 1;
        out[16..24].copy_from_slice(&first_seq.to_le_bytes());
        let count = if out[8] == 1 { count } else { 0 };
        out[24..28].copy_from_slice(&count.to_le_bytes());
        out[28..32].copy_from_slice(&synced.to_le_bytes());
        out.extend(body);
        out
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        try_log(&bytes);
    }

    #[test]
    fn arbitrary_blocks_are_decoded_or_refused(cut in any::<u8>(), blocks in prop::collection::vec(block(), 0..12)) {
        let mut bytes = vec![cut];
        bytes.extend(blocks.concat());
        try_log(&bytes);
    }
}
