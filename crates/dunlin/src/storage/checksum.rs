//! The checksum of a small text file. The file's last line but one is `checksum CRC`, where CRC is the CRC-32C of all
//! lines before that line.

use std::fmt::Write as _;

use crc_fast::{CrcAlgorithm, checksum};

const LINE: &str = "checksum ";

/// Adds the checksum to a text that ends with the line `last`.
pub(super) fn seal(mut text: String, last: &str) -> String {
    text.truncate(text.len() - last.len() - 1);
    let crc = of(&text);
    let _ = writeln!(text, "{LINE}{crc}\n{last}");
    text
}

/// Compares the checksum with the text. A text without a checksum passes, because older versions wrote none.
pub(super) fn check(text: &str) -> Result<(), String> {
    let Some(at) = text.rfind("\nchecksum ").map(|at| at + 1) else { return Ok(()) };
    let (before, line) = text.split_at(at);
    let recorded = line[LINE.len()..].split('\n').next().unwrap_or_default();
    let found = of(before);
    if recorded == found {
        return Ok(());
    }
    Err(format!("the file is damaged: its checksum is {found}, but should be {recorded:?}"))
}

/// Whether a line contains the checksum.
pub(super) fn is_line(line: &str) -> bool {
    line.starts_with(LINE)
}

fn of(text: &str) -> String {
    format!("{:08x}", checksum(CrcAlgorithm::Crc32Iscsi, text.as_bytes()) as u32)
}
