use dunlin_wire::{DecodeOutcome, Decoder, DecoderLimits};
use proptest::prelude::*;

use crate::samples::{SampleValues, for_each_from_client, for_each_from_node};

fn assert_round_trip(values: &SampleValues) {
    let decoder = Decoder::new(DecoderLimits::default());
    let mut out = Vec::new();
    for_each_from_client(values, |message| {
        out.clear();
        message.encode(&mut out);
        assert_eq!(decoder.next_from_client(&out), Ok(DecodeOutcome::Message(message, out.len())));
    });
    for_each_from_node(values, |message| {
        out.clear();
        message.encode(&mut out);
        assert_eq!(decoder.next_from_node(&out), Ok(DecodeOutcome::Message(message, out.len())));
    });
}

#[test]
fn example_messages_are_read_back_as_written() {
    assert_round_trip(&SampleValues::fixed());
}

#[test]
fn consecutive_messages_are_read_without_a_separator() {
    let decoder = Decoder::new(DecoderLimits::default());
    let mut out = Vec::new();
    let mut written = 0;
    for_each_from_node(&SampleValues::fixed(), |message| {
        message.encode(&mut out);
        written += 1;
    });
    let (mut rest, mut read) = (&out[..], 0);
    while let Ok(DecodeOutcome::Message(_, consumed)) = decoder.next_from_node(rest) {
        rest = &rest[consumed..];
        read += 1;
    }
    assert!(rest.is_empty());
    assert_eq!(read, written);
}

#[test]
fn overlong_text_is_cut_between_characters() {
    let long = "é".repeat(40_000);
    let refusal = dunlin_wire::Refusal::new(dunlin_wire::ErrorCode::Internal, &long);
    let mut out = Vec::new();
    dunlin_wire::FromNode::Error(refusal).encode(&mut out);
    let decoder = Decoder::new(DecoderLimits { control_bytes_max: 1 << 20, ..DecoderLimits::default() });
    let Ok(DecodeOutcome::Message(dunlin_wire::FromNode::Error(read), _)) = decoder.next_from_node(&out)
    else {
        panic!("not read")
    };
    assert_eq!(read.text.len(), 65_534);
}

proptest! {
    #[test]
    fn arbitrary_message_is_read_back_as_written(
        number in any::<u32>(),
        small_number in any::<u16>(),
        seq in any::<u64>(),
        flag in any::<bool>(),
        name in "[a-z.*>]{0,60}",
        text in any::<String>(),
        blob in proptest::collection::vec(any::<u8>(), 0..300),
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 1..6),
    ) {
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        assert_round_trip(&SampleValues::new(number, small_number, seq, flag, &name, &text, &blob, &payloads));
    }
}
