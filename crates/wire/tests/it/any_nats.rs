//! Checks of properties that hold whatever a NATS client sends. The random tests here and the fuzz target `nats` use
//! these checks.

use dunlin_wire::DecodeOutcome;
use dunlin_wire::nats::{
    Connect, HeaderBlock, NatsDecoderLimits, NatsOperation, STATUS_HEADER, header_lines, next,
};

const LIMITS: NatsDecoderLimits = NatsDecoderLimits { line_bytes_max: 256, payload_bytes_max: 1_024 };

/// Reads the bytes as operations, and then as a block of headers.
pub fn try_operations(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(DecodeOutcome::Message(operation, consumed)) = next(rest, &LIMITS) {
        assert!(0 < consumed && consumed <= rest.len());
        // If only the first `cut` bytes of the operation have arrived, they must not be read as a complete operation.
        for cut in 0..consumed {
            let result = next(&rest[..cut], &LIMITS);
            assert!(
                matches!(result, Ok(DecodeOutcome::Need(needs)) if cut < needs && needs <= consumed),
                "{result:?}"
            );
        }
        match operation {
            NatsOperation::Connect(json) => drop(Connect::parse(json)),
            NatsOperation::Publish(published) => try_headers(published.headers),
            _ => {}
        }
        rest = &rest[consumed..];
    }
    if let Ok(DecodeOutcome::Need(needs)) = next(rest, &LIMITS) {
        assert!(needs > rest.len() && needs <= LIMITS.line_bytes_max + LIMITS.payload_bytes_max + 2);
    }
    try_headers(bytes);
}

/// Checks that headers that were read can be written and read again without an error.
fn try_headers(block: &[u8]) {
    let Ok(block) = HeaderBlock::parse(block) else { return };
    let Ok(headers) = block.iter().collect::<Result<Vec<_>, _>>() else { return };
    let mut written = Vec::new();
    header_lines(&mut written, b"", headers.into_iter().filter(|(name, _)| *name != STATUS_HEADER));
    written.extend_from_slice(b"\r\n");
    let again = HeaderBlock::parse(&written).expect("it was written so");
    assert!(again.iter().all(|header| header.is_ok()));
}
