//! Properties that hold for any bytes. The random tests here and the fuzz target `frame` use them.

use dunlin_frame::{BatchHeader, Frame, HEAD_BYTES, Meta};

/// Reads the bytes as frames and as a batch header.
pub fn try_frame(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok((frame, stride)) = Frame::check(rest, 1 << 20) {
        assert!(stride.is_multiple_of(8) && stride <= rest.len());
        let split = Frame::split(rest).expect("what is sound can be read");
        assert!(split == (frame, stride), "checked and unchecked reading agree");
        check_again(&frame, &rest[..stride]);
        rest = &rest[stride..];
    }
    if let Ok(run) = BatchHeader::parse(bytes) {
        assert_eq!(run.to_bytes(), bytes[..run.to_bytes().len()]);
        assert!(run.count > 0 && run.last_seq() >= run.first_seq);
    }
}

/// Checks that a valid frame, encoded again, gives the same bytes.
fn check_again(frame: &Frame<'_>, bytes: &[u8]) {
    let headers: Vec<_> = frame.headers().collect();
    let meta: Meta<'_> = frame.to_meta(&headers);
    let encoded = meta.measure(frame.payload().len()).expect("what came in one frame fits one");
    assert_eq!(encoded.head_bytes(), HEAD_BYTES + frame.meta_bytes().len());
    let mut again = vec![0xff; encoded.padded()];
    meta.encode(encoded, frame.append_time_ns(), frame.payload(), &mut again);
    assert_eq!(again, bytes);
}
