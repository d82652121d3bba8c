//! Checks of properties that hold for any bytes. The random tests here and the fuzz target `frame` use these checks.

use dunlin_frame::{BatchHeader, Frame, HEAD_BYTES, RecordMeta};

/// Reads the bytes as frames and as a batch header.
pub fn try_frame(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok((frame, stride)) = Frame::check(rest, 1 << 20) {
        assert!(stride.is_multiple_of(8) && stride <= rest.len());
        let split = Frame::split(rest).expect("a valid frame can be split");
        assert!(split == (frame, stride), "checked and unchecked reading agree");
        check_encoding(&frame, &rest[..stride]);
        rest = &rest[stride..];
    }
    if let Ok(header) = BatchHeader::parse(bytes) {
        assert_eq!(header.to_bytes(), bytes[..header.to_bytes().len()]);
        assert!(header.count > 0 && header.last_seq() >= header.first_seq);
    }
}

/// Checks that decoding a valid frame and encoding it again gives the same bytes.
fn check_encoding(frame: &Frame<'_>, bytes: &[u8]) {
    let headers: Vec<_> = frame.headers().collect();
    let meta: RecordMeta<'_> = frame.to_meta(&headers);
    let encoded = meta.measure(frame.payload().len()).expect("the fields of a frame fit into a frame");
    assert_eq!(encoded.head_bytes(), HEAD_BYTES + frame.meta_bytes().len());
    let mut encoded_again = vec![0xff; encoded.padded()];
    meta.encode(encoded, frame.append_time_ns(), frame.payload(), &mut encoded_again);
    assert_eq!(encoded_again, bytes);
}
