//! What must hold for any bytes of a peer. Used by the random tests here and by the fuzz target `wire`.

use dunlin_wire::{Decoder, FromClient, FromNode, Limits, Next, Preamble};

/// Takes the bytes for messages of a client, and of a node; how many were understood.
pub fn try_messages(bytes: &[u8]) -> usize {
    let _ = Preamble::parse(bytes);
    let decoder = Decoder::new(Limits::default());
    let mut understood = 0;
    let mut rest = bytes;
    while let Ok(Next::Message(message, taken)) = decoder.next_from_node(rest) {
        if let FromNode::Run(run) = &message {
            let _ = run.header.last_seq();
        }
        // Walks lists and records too.
        let _ = format!("{message:?}");
        assert!(taken > 0 && taken <= rest.len());
        (rest, understood) = (&rest[taken..], understood + 1);
    }
    rest = bytes;
    while let Ok(Next::Message(message, taken)) = decoder.next_from_client(rest) {
        if let FromClient::Publish(publish) = &message {
            let _ = publish.header.last_producer_seq();
        }
        let _ = format!("{message:?}");
        assert!(taken > 0 && taken <= rest.len());
        (rest, understood) = (&rest[taken..], understood + 1);
    }
    understood
}
