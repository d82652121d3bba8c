//! Adds a checksum to JSON files and checks it. The file's last entry is `"checksum": "CRC"`, with the CRC-32C of all
//! bytes before this entry.

use crc_fast::{CrcAlgorithm, checksum};

const ENTRY: &str = "\"checksum\": \"";

/// Appends the checksum to the text of an object that `serde_json` pretty-printed.
pub(super) fn seal(text: &str) -> String {
    let entries = text.strip_suffix("\n}").unwrap_or(text);
    let before = format!("{entries},\n  ");
    let crc = checksum_text(&before);
    format!("{before}{ENTRY}{crc}\"\n}}")
}

/// Checks the text's checksum. Returns whether the text has a checksum; fails if the checksum is wrong.
pub(super) fn check(text: &str) -> Result<bool, String> {
    let Some(at) = text.rfind(ENTRY) else { return Ok(false) };
    let (before, entry) = text.split_at(at);
    let stored = entry[ENTRY.len()..].split('"').next().unwrap_or_default();
    let computed = checksum_text(before);
    if stored == computed {
        return Ok(true);
    }
    Err(format!("the file is damaged: its checksum is {computed}, but should be {stored:?}"))
}

fn checksum_text(text: &str) -> String {
    format!("{:08x}", checksum(CrcAlgorithm::Crc32Iscsi, text.as_bytes()) as u32)
}
