//! Tests that the bytes of sample messages never change within a version. The files `tests/golden/*.hex` contain the
//! expected bytes.
//!
//! `DUNLIN_WRITE_GOLDEN=1 cargo test -p dunlin-wire` writes the file of a new message.

use std::collections::HashSet;
use std::path::Path;

use dunlin_wire::{DecodeOutcome, Decoder, DecoderLimits, FromNode, KINDS, OptionalText, Preamble, Welcome};

use crate::samples::{SampleValues, encoded_samples};

fn hex(bytes: &[u8]) -> String {
    bytes
        .chunks(16)
        .map(|row| row.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ") + "\n")
        .collect()
}

#[test]
fn encoding_of_each_message_does_not_change() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut kinds = HashSet::new();
    for (kind, bytes) in encoded_samples(&SampleValues::fixed()) {
        let row = KINDS.iter().find(|row| row.kind == kind).unwrap();
        let file = folder.join(format!("{}.hex", row.name.to_lowercase()));
        if std::env::var_os("DUNLIN_WRITE_GOLDEN").is_some() && !file.exists() {
            std::fs::write(&file, hex(&bytes)).unwrap();
        }
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(hex(&bytes), expected, "{}", row.name);
        assert!(bytes.len().is_multiple_of(8));
        kinds.insert(kind);
    }
    assert_eq!(kinds.len(), KINDS.len(), "a kind has no sample");
}

#[test]
fn preamble_encoding_does_not_change() {
    assert_eq!(&Preamble { version_min: 1, version_max: 2 }.to_bytes(), b"DUNLIN\x01\x02");
}

/// An older node sends a WELCOME without the last field, `cluster`.
#[test]
fn welcome_message_of_an_older_node_names_no_cluster() {
    let mut old = Vec::new();
    FromNode::Welcome(Welcome {
        node: 1,
        session: 2,
        node_name: "n",
        inbox_prefix: "_INBOX.2.",
        heartbeat_ms: 1_000,
        run_bytes_max: 3,
        control_bytes_max: 4,
        subscriptions_max: 5,
        publishers_max: 6,
        in_flight_bytes_max: 7,
        cluster: OptionalText(""),
    })
    .encode(&mut old);
    // Cuts the message after `in_flight_bytes_max`, where the WELCOME of an older node ends.
    let unpadded = 8 + 8 + 8 + (2 + 1) + (2 + 9) + 6 * 4;
    old.truncate(usize::next_multiple_of(unpadded, 8));
    let len = old.len() as u32;
    old[..4].copy_from_slice(&len.to_le_bytes());
    let Ok(DecodeOutcome::Message(FromNode::Welcome(welcome), _)) =
        Decoder::new(DecoderLimits::default()).next_from_node(&old)
    else {
        panic!("an older node's WELCOME is not read");
    };
    assert_eq!((welcome.cluster, welcome.in_flight_bytes_max), (OptionalText(""), 7));
}
