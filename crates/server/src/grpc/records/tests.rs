use proptest::prelude::*;
use prost::Message;

use dunlin::topic::RecordMeta;

use super::super::outgoing::HEAD_BYTES as GRPC_HEAD_BYTES;
use super::super::proto::dunlin as v1;
use super::*;

#[derive(Debug, Clone)]
struct TestRecord {
    tail: String,
    payload: Vec<u8>,
    append_time_ns: u64,
    times: (Option<u64>, Option<u64>),
    key: Option<Vec<u8>>,
    reply: Option<String>,
    headers: Vec<(String, Vec<u8>)>,
}

impl TestRecord {
    fn frame(&self) -> Vec<u8> {
        let headers: Vec<_> = self.headers.iter().map(|(n, v)| (n.as_str(), v.as_slice())).collect();
        let meta = RecordMeta {
            event_time_ns: self.times.0,
            expires_ns: self.times.1,
            subject_tail: &self.tail,
            key: self.key.as_deref(),
            reply: self.reply.as_deref(),
            headers: &headers,
        };
        let encoded = meta.measure(self.payload.len()).unwrap();
        let mut frame = vec![0; encoded.padded()];
        meta.encode(encoded, self.append_time_ns, &self.payload, &mut frame);
        frame
    }

    fn message(&self, prefix: &str, seq: u64, skipped: u64) -> v1::Record {
        v1::Record {
            seq,
            skipped,
            subject: if self.tail.is_empty() { String::new() } else { format!("{prefix}{}", self.tail) },
            payload: self.payload.clone().into(),
            append_time_ns: self.append_time_ns,
            event_time_ns: self.times.0,
            expires_ns: self.times.1,
            key: self.key.clone().map(Into::into),
            reply: self.reply.clone().unwrap_or_default(),
            headers: self
                .headers
                .iter()
                .map(|(name, value)| v1::Header { name: name.clone(), value: value.clone().into() })
                .collect(),
        }
    }
}

fn published() -> impl Strategy<Value = TestRecord> {
    let bytes = |max| proptest::collection::vec(any::<u8>(), 0..max);
    let plain = (bytes(300), any::<u64>());
    let fields = (
        any::<(Option<u64>, Option<u64>)>(),
        proptest::option::of(bytes(200)),
        proptest::option::of("[a-z]{0,30}"),
        proptest::collection::vec(("[a-zA-Z-]{0,200}", bytes(200)), 0..4),
    );
    let with_fields = (plain.clone(), fields);
    prop_oneof![
        plain.prop_map(|(payload, append_time_ns)| TestRecord {
            tail: String::new(),
            payload,
            append_time_ns,
            times: (None, None),
            key: None,
            reply: None,
            headers: Vec::new(),
        }),
        with_fields.prop_map(|((payload, append_time_ns), (times, key, reply, headers))| TestRecord {
            tail: String::new(),
            payload,
            append_time_ns,
            times,
            key,
            reply,
            headers,
        }),
    ]
}

fn response(log: &LogName, first: Position, skipped: u64, records: &[TestRecord]) -> v1::SubscribeResponse {
    let has_one_subject = records[0].tail.is_empty();
    let messages = records.iter().enumerate().map(|(at, record)| {
        let skipped = if at == 0 { skipped } else { 0 };
        record.message(&log.subject_prefix, first.seq + at as u64, skipped)
    });
    let records = v1::Records {
        topic: log.topic.clone(),
        partition: log.partition.into(),
        epoch: first.epoch,
        subject: if has_one_subject { log.subject_prefix.clone() } else { String::new() },
        records: messages.collect(),
    };
    v1::SubscribeResponse { event: Some(v1::subscribe_response::Event::Records(records)) }
}

fn with_head(message: &impl Message) -> Vec<u8> {
    let mut bytes = vec![0; GRPC_HEAD_BYTES];
    message.encode(&mut bytes).unwrap();
    let len = (bytes.len() - GRPC_HEAD_BYTES) as u32;
    bytes[1..5].copy_from_slice(&len.to_be_bytes());
    bytes
}

proptest! {
    #[test]
    fn record_encoder_and_crate_prost_produce_equal_bytes(
        mut records in proptest::collection::vec(published(), 1..80),
        tail in "[a-z]{0,20}",
        topic in "[a-z]{1,200}",
        partition in any::<u16>(),
        epoch in any::<u32>(),
        seq in prop_oneof![1u64..1000, 1..u64::MAX - 1000],
        skipped in prop_oneof![Just(0u64), any::<u64>()],
    ) {
        records.iter_mut().for_each(|record| record.tail.clone_from(&tail));
        let log = LogName { topic, subject_prefix: "orders.".to_owned(), partition };
        let first = Position { epoch, seq };
        let frames: Vec<u8> = records.iter().flat_map(TestRecord::frame).collect();
        let batch = RecordBatch { log: &log, first, skipped, content: RecordSpanContent::Frames(&frames) };
        let expected = with_head(&response(&log, first, skipped, &records));
        let mut out = OutgoingMessages::default();
        encode_records(&mut out, &batch);
        prop_assert_eq!(&out.finish()[..], &expected[..]);
        // The encoding must be the same if another message precedes it in the buffer.
        let mut out = OutgoingMessages::default();
        out.push(&v1::Advance::default());
        encode_records(&mut out, &batch);
        encode_records(&mut out, &batch);
        prop_assert_eq!(&out.finish()[GRPC_HEAD_BYTES..], [&expected[..], &expected[..]].concat());
    }
}

#[test]
fn payload_by_reference_is_encoded_like_an_inline_one() {
    let record = TestRecord {
        tail: String::new(),
        payload: vec![7; 100_000],
        append_time_ns: 5,
        times: (None, None),
        key: Some(b"k".to_vec()),
        reply: None,
        headers: Vec::new(),
    };
    let log = LogName { topic: "t".to_owned(), subject_prefix: "t".to_owned(), partition: 0 };
    let first = Position { epoch: 1, seq: 9 };
    let frame = record.frame();
    let mut head = frame[..HEAD_BYTES + Frame::split(&frame).unwrap().0.meta_bytes().len()].to_vec();
    head[5] |= FLAG_BY_REF;
    let payload = bytes::Bytes::from(record.payload.clone());
    let content = RecordSpanContent::ByRef { head: &head, payload: &payload };
    let mut out = OutgoingMessages::default();
    encode_records(&mut out, &RecordBatch { log: &log, first, skipped: 0, content });
    assert_eq!(out.finish(), with_head(&response(&log, first, 0, &[record])));
}

#[test]
fn computed_varint_length_equals_the_written_length() {
    for bits in 0..64 {
        for number in [1u64 << bits, (1 << bits) - 1, (1 << bits) + 1] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(varint_bytes(number), bytes.len(), "{number}");
        }
    }
}
