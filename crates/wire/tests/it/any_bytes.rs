//! Checks of properties that hold whatever bytes are received. The random tests here and the fuzz target `wire` use
//! these checks.

use dunlin_wire::{DecodeOutcome, Decoder, DecoderLimits, FromClient, FromNode, Preamble};

/// Decodes the bytes as messages of a client and as messages of a node. Returns the number of decoded messages.
pub fn try_messages(bytes: &[u8]) -> usize {
    let _ = Preamble::parse(bytes);
    let decoder = Decoder::new(DecoderLimits::default());
    let mut count = 0;
    let mut rest = bytes;
    while let Ok(DecodeOutcome::Message(message, consumed)) = decoder.next_from_node(rest) {
        if let FromNode::Batch(batch) = &message {
            let _ = batch.header.last_seq();
        }
        // Formats the message, because this also iterates over its lists and records.
        let _ = format!("{message:?}");
        assert!(consumed > 0 && consumed <= rest.len());
        (rest, count) = (&rest[consumed..], count + 1);
    }
    rest = bytes;
    while let Ok(DecodeOutcome::Message(message, consumed)) = decoder.next_from_client(rest) {
        if let FromClient::Publish(publish) = &message {
            let _ = publish.header.last_producer_seq();
        }
        let _ = format!("{message:?}");
        assert!(consumed > 0 && consumed <= rest.len());
        (rest, count) = (&rest[consumed..], count + 1);
    }
    count
}
