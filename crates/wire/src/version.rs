//! The first eight bytes each way, and which version is spoken after them.
//!
//! ```text
//!  0                         6         7         8
//!  +-------------------------+---------+---------+
//!  | 44 55 4e 4c 49 4e       | version | version |
//!  | D  U  N  L  I  N        | min u8  | max u8  |
//!  +-------------------------+---------+---------+
//! ```
//! The client offers a range. The node answers with the one version it chose, as both ends of the
//! range, or with its own range when the two do not meet, and then says why in REFUSED.
//!
//! The rule: a node accepts the version it was built with and the one before. The preamble, HELLO,
//! WELCOME and REFUSED keep their layout for ever, but fields may be added at their ends, which
//! readers that do not know them skip; all other layouts may change with the version.

use crate::code::{ErrorCode, Refusal};
use crate::error::WireError;

/// The version this build speaks best.
pub const VERSION: u8 = 5;
/// The oldest version this build still speaks.
pub const VERSION_MIN: u8 = 4;
/// What every connection begins with, both ways.
pub const MAGIC: [u8; 6] = *b"DUNLIN";
/// Bytes of a preamble.
pub const PREAMBLE_BYTES: usize = 8;

/// A range of versions: what a client offers, or what a node answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Preamble {
    /// The lowest.
    pub version_min: u8,
    /// The highest.
    pub version_max: u8,
}

impl Preamble {
    /// What this build offers as a client, or answers as a node when the ranges do not meet.
    pub const OURS: Preamble = Preamble { version_min: VERSION_MIN, version_max: VERSION };

    /// The answer of a node that chose `version`.
    pub fn chosen(version: u8) -> Preamble {
        Preamble { version_min: version, version_max: version }
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; PREAMBLE_BYTES] {
        let [d, u, n, l, i, n2] = MAGIC;
        [d, u, n, l, i, n2, self.version_min, self.version_max]
    }

    /// Reads a preamble; `None` while fewer than eight bytes are there and they may become one.
    pub fn parse(bytes: &[u8]) -> Result<Option<Preamble>, WireError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            let mut first = [0; 8];
            let shown = bytes.len().min(first.len());
            first[..shown].copy_from_slice(&bytes[..shown]);
            return Err(WireError::Magic(first));
        }
        let Some(&[.., version_min, version_max]) = bytes.first_chunk::<PREAMBLE_BYTES>() else {
            return Ok(None);
        };
        if version_min > version_max || version_max == 0 {
            return Err(WireError::VersionRange { min: version_min, max: version_max });
        }
        Ok(Some(Preamble { version_min, version_max }))
    }

    /// The highest version both ranges hold, or the refusal to send.
    pub fn negotiate(self, offered: Preamble) -> Result<u8, Refusal<'static>> {
        let version = self.version_max.min(offered.version_max);
        if version >= self.version_min.max(offered.version_min) {
            return Ok(version);
        }
        Err(Refusal {
            code: ErrorCode::Version,
            numbers: [u64::from(self.version_min), u64::from(self.version_max), 0],
            text: "no version in common",
        })
    }
}
