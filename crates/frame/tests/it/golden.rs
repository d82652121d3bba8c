//! Tests that the encoding of a few sample records never changes. `tests/golden/*.hex` holds the expected bytes.

use dunlin_frame::{BatchHeader, Frame, RecordMeta};

fn encode(meta: &RecordMeta<'_>, time: u64, payload: &[u8]) -> Vec<u8> {
    let encoded = meta.measure(payload.len()).unwrap();
    let mut out = vec![0xAA; encoded.padded()];
    meta.encode(encoded, time, payload, &mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .chunks(16)
        .map(|row| row.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ") + "\n")
        .collect()
}

fn full_meta<'a>() -> RecordMeta<'a> {
    RecordMeta {
        event_time_ns: Some(1_700_000_000_000_000_001),
        expires_ns: Some(1_700_000_060_000_000_000),
        subject_tail: "eu.42",
        key: Some(b"k\x00y"),
        reply: Some("_INBOX.a.1"),
        headers: &[("trace", b"\x01\x02"), ("empty", b"")],
    }
}

#[test]
fn plain_record_encoding_does_not_change() {
    assert_eq!(hex(&encode(&RecordMeta::default(), 7, b"hello")), include_str!("../golden/plain.hex"));
}

#[test]
fn encoding_of_a_record_with_every_field_does_not_change() {
    let bytes = encode(&full_meta(), 1_700_000_000_000_000_002, b"payload");
    assert_eq!(hex(&bytes), include_str!("../golden/full.hex"));
    let (frame, stride) = Frame::check(&bytes, bytes.len()).unwrap();
    assert_eq!(stride, bytes.len());
    let headers: Vec<_> = frame.headers().collect();
    assert_eq!(frame.to_meta(&headers), full_meta());
    assert_eq!(frame.payload(), b"payload");
}

#[test]
fn batch_header_encoding_does_not_change() {
    let header = BatchHeader { topic_id: 1, epoch: 2, prev_seq: 3, first_seq: 4, count: 5, bytes: 120 };
    assert_eq!(hex(&header.to_bytes()), include_str!("../golden/run.hex"));
    assert_eq!(BatchHeader::parse(&header.to_bytes()), Ok(header));
}
