//! The bytes of known messages never change within a version: `tests/golden/*.hex` were written once.
//!
//! A message that is new gets its file from `DUNLIN_WRITE_GOLDEN=1 cargo test -p dunlin-wire`.

use std::collections::HashSet;
use std::path::Path;

use dunlin_wire::{KINDS, Preamble};

use crate::samples::{Values, encoded};

fn hex(bytes: &[u8]) -> String {
    bytes
        .chunks(16)
        .map(|row| row.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ") + "\n")
        .collect()
}

#[test]
fn every_message_keeps_its_bytes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut seen = HashSet::new();
    for (kind, bytes) in encoded(&Values::fixed()) {
        let row = KINDS.iter().find(|row| row.kind == kind).unwrap();
        let file = folder.join(format!("{}.hex", row.name.to_lowercase()));
        if std::env::var_os("DUNLIN_WRITE_GOLDEN").is_some() && !file.exists() {
            std::fs::write(&file, hex(&bytes)).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(hex(&bytes), kept, "{}", row.name);
        assert!(bytes.len().is_multiple_of(8));
        seen.insert(kind);
    }
    assert_eq!(seen.len(), KINDS.len(), "a kind has no sample");
}

#[test]
fn the_preamble_keeps_its_bytes() {
    assert_eq!(&Preamble { version_min: 1, version_max: 2 }.to_bytes(), b"DUNLIN\x01\x02");
}
