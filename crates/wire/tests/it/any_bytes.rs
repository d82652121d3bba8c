//! Properties that must hold for any bytes that a peer sends. The random tests here and the fuzz target `wire` check
//! them.

use dunlin_wire::{Decoded, Decoder, DecoderLimits, FromClient, FromNode, Preamble};

/// Decodes the bytes as messages of a client and of a node; returns the number of decoded messages.
pub fn try_messages(bytes: &[u8]) -> usize {
    let _ = Preamble::parse(bytes);
    let decoder = Decoder::new(DecoderLimits::default());
    let mut understood = 0;
    let mut rest = bytes;
    while let Ok(Decoded::Message(message, taken)) = decoder.next_from_node(rest) {
        if let FromNode::Batch(run) = &message {
            let _ = run.header.last_seq();
        }
        // Formatting a message also iterates over its lists and records.
        let _ = format!("{message:?}");
        assert!(taken > 0 && taken <= rest.len());
        (rest, understood) = (&rest[taken..], understood + 1);
    }
    rest = bytes;
    while let Ok(Decoded::Message(message, taken)) = decoder.next_from_client(rest) {
        if let FromClient::Publish(publish) = &message {
            let _ = publish.header.last_producer_seq();
        }
        let _ = format!("{message:?}");
        assert!(taken > 0 && taken <= rest.len());
        (rest, understood) = (&rest[taken..], understood + 1);
    }
    understood
}
