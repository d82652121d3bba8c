use dunlin_wire::*;
use proptest::prelude::*;

use crate::any_bytes::try_messages;
use crate::http_text::{try_id, try_payload, try_query};
use crate::samples::{SampleValues, encoded_samples, frame};

#[test]
fn decoder_asks_for_the_rest_of_a_truncated_message() {
    let decoder = Decoder::new(DecoderLimits::default());
    for (kind, bytes) in encoded_samples(&SampleValues::fixed()) {
        let from_client = KINDS.iter().any(|row| row.kind == kind && row.from_client);
        for have in 0..bytes.len() {
            let need = if have < HEADER_BYTES { HEADER_BYTES } else { bytes.len() };
            if from_client {
                assert_eq!(
                    decoder.next_from_client(&bytes[..have]),
                    Ok(DecodeOutcome::Need(need)),
                    "{kind:?}"
                );
            } else {
                assert_eq!(decoder.next_from_node(&bytes[..have]), Ok(DecodeOutcome::Need(need)), "{kind:?}");
            }
        }
    }
}

#[test]
fn message_in_the_wrong_direction_is_refused() {
    let decoder = Decoder::new(DecoderLimits::default());
    for (kind, bytes) in encoded_samples(&SampleValues::fixed()) {
        let unknown = WireError::UnknownKind(kind as u8);
        if KINDS.iter().any(|row| row.kind == kind && row.from_client) {
            assert_eq!(decoder.next_from_node(&bytes), Err(unknown));
        } else {
            assert_eq!(decoder.next_from_client(&bytes), Err(unknown));
        }
    }
}

#[test]
fn oversized_message_is_refused_before_its_body_arrives() {
    let decoder = Decoder::new(DecoderLimits { run_bytes_max: 4096, control_bytes_max: 256 });
    let run = MessageHeader { len: 4104, kind: MessageKind::Batch as u8, flags: 0 };
    assert_eq!(
        decoder.next_from_node(&run.to_bytes()),
        Err(WireError::TooLarge { kind: MessageKind::Batch, bytes: 4104, bytes_max: 4096 })
    );
    let ping = MessageHeader { len: 264, kind: MessageKind::Ping as u8, flags: 0 };
    assert_eq!(
        decoder.next_from_client(&ping.to_bytes()),
        Err(WireError::TooLarge { kind: MessageKind::Ping, bytes: 264, bytes_max: 256 })
    );
}

#[test]
fn invalid_message_length_is_refused() {
    let decoder = Decoder::new(DecoderLimits::default());
    for len in [0, 4, 7, 9, 12, u32::MAX] {
        let header = MessageHeader { len, kind: MessageKind::Ping as u8, flags: 0 };
        assert_eq!(decoder.next_from_client(&header.to_bytes()), Err(WireError::Length(len)));
    }
}

#[test]
fn message_with_reserved_bits_is_refused() {
    let decoder = Decoder::new(DecoderLimits::default());
    let mut bytes = Vec::new();
    FromClient::Ping(Ping { token: 1 }).encode(&mut bytes);
    bytes[5] = 1;
    assert_eq!(decoder.next_from_client(&bytes), Err(WireError::Flags { kind: MessageKind::Ping, flags: 1 }));
    bytes[6] = 1;
    assert_eq!(decoder.next_from_client(&bytes), Err(WireError::Reserved(1)));
}

#[test]
fn list_whose_item_count_exceeds_its_message_is_refused() {
    let decoder = Decoder::new(DecoderLimits::default());
    let mut bytes = Vec::new();
    FromNode::Heartbeat(Heartbeat { channels: MessageList::new(&[]) }).encode(&mut bytes);
    bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(
        decoder.next_from_node(&bytes),
        Err(WireError::Short { kind: MessageKind::Heartbeat, .. })
    ));
}

#[test]
fn trailing_bytes_are_refused_except_in_handshake_messages() {
    let decoder = Decoder::new(DecoderLimits::default());
    for (kind, mut bytes) in encoded_samples(&SampleValues::fixed()) {
        if kind.carries_records() {
            continue;
        }
        bytes.extend_from_slice(&[1; 8]);
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        let error = if (kind as u8) < 64 {
            decoder.next_from_client(&bytes).err()
        } else {
            decoder.next_from_node(&bytes).err()
        };
        let may_grow = matches!(kind, MessageKind::Hello | MessageKind::Welcome | MessageKind::Refused);
        assert_eq!(error.is_none(), may_grow, "{kind:?}");
    }
}

#[test]
fn publish_with_inconsistent_header_or_flags_is_refused() {
    let decoder = Decoder::new(DecoderLimits::default());
    let frames = frame(b"one");
    let sound = PublishHeader {
        publisher: 1,
        producer_seq: 1,
        count: 1,
        bytes: frames.len() as u32,
        ..Default::default()
    };
    let read = |header, flags| {
        let mut bytes = Vec::new();
        FromClient::Publish(Publish { flags, header, frames: &frames }).encode(&mut bytes);
        let len = (RUN_HEAD_BYTES + frames.len()) as u32;
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        decoder.next_from_client(&bytes).map(drop)
    };
    assert_eq!(read(sound, 0), Ok(()));
    for (header, flags) in [
        (PublishHeader { count: 0, ..sound }, 0),
        (PublishHeader { producer_seq: 0, ..sound }, 0),
        (PublishHeader { producer_seq: u64::MAX, ..sound }, 0),
        (PublishHeader { expect_seq: 1, ..sound }, 0),
        (PublishHeader { bytes: 8, ..sound }, 0),
        (sound, FLAG_ACK | FLAG_QUIET),
        (sound, 0x80),
    ] {
        assert!(read(header, flags).is_err(), "{header:?} {flags}");
    }
}

#[test]
fn gap_of_negative_length_is_refused() {
    let decoder = Decoder::new(DecoderLimits::default());
    for (first, last) in [(0, 5), (5, 4), (1, u64::MAX)] {
        let mut bytes = Vec::new();
        FromNode::Gap(GapMessage { channel: 1, epoch: 1, first, last }).encode(&mut bytes);
        assert!(matches!(decoder.next_from_node(&bytes), Err(WireError::Value { .. })), "{first}..{last}");
    }
}

#[test]
fn decoding_a_message_with_a_changed_byte_never_panics() {
    for (_, bytes) in encoded_samples(&SampleValues::fixed()) {
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 7, 8, 0x7f, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                try_messages(&damaged);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn decoding_random_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        try_messages(&bytes);
        let _ = Preamble::parse(&bytes);
    }

    #[test]
    fn decoding_random_bodies_with_valid_headers_never_panics(
        kind in 0usize..43,
        flags in 0u8..8,
        body in proptest::collection::vec(prop_oneof![Just(0u8), 0u8..4, any::<u8>()], 0..200),
    ) {
        let body = &body[..body.len() & !7];
        let kind = KINDS[kind % KINDS.len()].kind as u8;
        let header = MessageHeader { len: (body.len() + 8) as u32, kind, flags };
        try_messages(&[&header.to_bytes(), body].concat());
    }
}

#[test]
fn delivery_with_a_wrong_count_or_bad_frame_is_refused() {
    let decoder = Decoder::new(DecoderLimits::default());
    let sound = SampleValues::fixed().deliver;
    assert!(decoder.next_from_node(&sound).is_ok());
    let mut miscounted = sound.clone();
    miscounted[12] += 1;
    assert!(matches!(decoder.next_from_node(&miscounted), Err(WireError::Count { found: 2, count: 3, .. })));
    let mut unsound = sound;
    unsound[24 + 32 + 4] = 9;
    assert!(matches!(decoder.next_from_node(&unsound), Err(WireError::Frame { .. })));
}

proptest! {
    #[test]
    fn decoding_arbitrary_queries_ids_and_payloads_never_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        text in "[a-z0-9=&%+m_-]{0,60}",
        id in "m[A-Za-z0-9_-]{0,80}",
        at in "[0-9]{0,12}-[0-9]{0,22}",
    ) {
        for bytes in [&bytes, text.as_bytes(), id.as_bytes(), at.as_bytes()] {
            try_query(bytes);
            try_id(bytes);
            try_payload(bytes);
        }
    }
}
