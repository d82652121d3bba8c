use dunlin_frame::{Frame, RecordMeta};
use proptest::prelude::*;

proptest! {
    #[test]
    fn encoded_frames_are_accepted_and_read_back_equal(
        event in any::<Option<u64>>(),
        expires in any::<Option<u64>>(),
        tail in "[a-z.]{0,40}",
        key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        reply in proptest::option::of("[a-zA-Z_.]{1,40}"),
        headers in proptest::collection::vec(("[a-z]{1,8}", proptest::collection::vec(any::<u8>(), 0..20)), 0..5),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        time in any::<u64>(),
    ) {
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (n.as_str(), v.as_slice())).collect();
        let meta = RecordMeta {
            event_time_ns: event,
            expires_ns: expires,
            subject_tail: &tail,
            key: key.as_deref(),
            reply: reply.as_deref(),
            headers: &headers,
        };
        let encoded = meta.measure(payload.len()).unwrap();
        let mut bytes = vec![0xAA; encoded.padded() + 16];
        meta.encode(encoded, time, &payload, &mut bytes);
        let (frame, stride) = Frame::check(&bytes, usize::MAX).unwrap();
        prop_assert_eq!(stride, encoded.padded());
        prop_assert_eq!(Frame::split(&bytes), Some((frame, stride)));
        prop_assert_eq!(frame.append_time_ns(), time);
        prop_assert_eq!(frame.payload(), payload.as_slice());
        let read: Vec<_> = frame.headers().collect();
        prop_assert_eq!(frame.to_meta(&read), meta);
    }
}
