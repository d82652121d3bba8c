use dunlin_frame::{BatchHeader, FLAG_BY_REF, FLAG_HEADERS, Frame, FrameError, RecordMeta};
use proptest::prelude::*;

use crate::any_bytes::try_frame;

fn plain(payload: &[u8]) -> Vec<u8> {
    let encoded = RecordMeta::default().measure(payload.len()).unwrap();
    let mut out = vec![0; encoded.padded()];
    RecordMeta::default().encode(encoded, 1, payload, &mut out);
    out
}

#[test]
fn error_for_a_truncated_frame_has_the_number_of_needed_bytes() {
    let bytes = plain(b"hello");
    for have in 8..bytes.len() {
        assert_eq!(
            Frame::check(&bytes[..have], 1024),
            Err(FrameError::Truncated { need: bytes.len(), have })
        );
    }
    assert_eq!(Frame::check(&bytes[..3], 1024), Err(FrameError::Truncated { need: 8, have: 3 }));
}

#[test]
fn oversized_frame_is_refused_after_its_first_8_bytes() {
    let bytes = plain(&[0; 100]);
    assert_eq!(Frame::check(&bytes[..8], 64), Err(FrameError::TooLarge { bytes: 120, bytes_max: 64 }));
}

#[test]
fn received_frame_with_a_payload_by_reference_is_refused() {
    let mut bytes = plain(b"12345678");
    bytes[5] |= FLAG_BY_REF;
    assert_eq!(Frame::check(&bytes, 1024), Err(FrameError::ForbiddenFlags(FLAG_BY_REF)));
}

#[test]
fn frame_flags_without_their_fields_are_refused() {
    let mut bytes = plain(b"12345678");
    bytes[5] = FLAG_HEADERS;
    assert_eq!(Frame::check(&bytes, 1024), Err(FrameError::Meta("headers")));
}

#[test]
fn frame_with_nonzero_padding_is_refused() {
    let mut bytes = plain(b"hello");
    *bytes.last_mut().unwrap() = 1;
    assert_eq!(Frame::check(&bytes, 1024), Err(FrameError::Padding));
}

#[test]
fn frame_fields_too_long_for_their_layout_are_refused() {
    let key = vec![0; 70_000];
    let meta = RecordMeta { key: Some(&key), ..RecordMeta::default() };
    assert!(matches!(meta.measure(0), Err(FrameError::FieldTooLong { field: "meta", .. })));
}

#[test]
fn contradictory_batch_header_is_refused() {
    let valid = BatchHeader { topic_id: 1, epoch: 1, prev_seq: 0, first_seq: 1, count: 2, bytes: 48 };
    for broken in [
        BatchHeader { count: 0, ..valid },
        BatchHeader { count: 4, ..valid },
        BatchHeader { bytes: 50, ..valid },
        BatchHeader { first_seq: u64::MAX, ..valid },
        BatchHeader { prev_seq: 1, ..valid },
    ] {
        assert!(matches!(BatchHeader::parse(&broken.to_bytes()), Err(FrameError::Batch(_))), "{broken:?}");
    }
}

proptest! {
    #[test]
    fn decoding_random_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        try_frame(&bytes);
    }

    #[test]
    fn decoding_a_damaged_frame_never_panics(at in 0usize..60, value in any::<u8>(), flags in any::<u8>()) {
        let headers: &[(&str, &[u8])] = &[("n", b"v")];
        let meta = RecordMeta { key: Some(b"key"), subject_tail: "a.b", headers, ..RecordMeta::default() };
        let encoded = meta.measure(9).unwrap();
        let mut bytes = vec![0; encoded.padded()];
        meta.encode(encoded, 1, b"123456789", &mut bytes);
        let at = at % bytes.len();
        bytes[at] = value;
        try_frame(&bytes);
        bytes[5] = flags;
        try_frame(&bytes);
    }
}
