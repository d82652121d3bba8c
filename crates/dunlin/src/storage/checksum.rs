//! The checksum of a small text file. The last but one line of the file is `checksum CRC`. CRC is the CRC-32C of all
//! lines before this line.

use std::fmt::Write as _;

use crc_fast::{CrcAlgorithm, checksum};

const LINE: &str = "checksum ";

/// Inserts the line with the checksum before `last`, the last line of the text.
pub(super) fn seal(mut text: String, last: &str) -> String {
    text.truncate(text.len() - last.len() - 1);
    let crc = of(&text);
    let _ = writeln!(text, "{LINE}{crc}\n{last}");
    text
}

/// Returns an error if the text does not match its checksum. A text without a checksum passes, because older versions
/// wrote none.
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

/// Whether this is the line with the checksum.
pub(super) fn is_line(line: &str) -> bool {
    line.starts_with(LINE)
}

fn of(text: &str) -> String {
    format!("{:08x}", checksum(CrcAlgorithm::Crc32Iscsi, text.as_bytes()) as u32)
}
