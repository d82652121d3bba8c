//! The preamble: the first eight bytes of each side, which negotiate the protocol version.
//!
//! ```text
//!  0                         6         7         8
//!  +-------------------------+---------+---------+
//!  | 44 55 4e 4c 49 4e       | version | version |
//!  | D  U  N  L  I  N        | min u8  | max u8  |
//!  +-------------------------+---------+---------+
//! ```
//! The client offers a range of versions. The node replies with the chosen version as both lowest and highest version.
//! If the ranges do not overlap, the node replies with its own range, and then sends REFUSED.
//!
//! A node accepts its own version and the previous one. The layouts of the preamble, HELLO, WELCOME and
//! REFUSED never change, except for fields added at the end, which older peers skip. All other layouts may
//! change with the version.

use crate::code::{ErrorCode, Refusal};
use crate::error::WireError;

/// The newest version that this release supports.
pub const VERSION: u8 = 5;
/// The oldest version that this release supports.
pub const VERSION_MIN: u8 = 4;
/// The first bytes that each side of a connection sends.
pub const MAGIC: [u8; 6] = *b"DUNLIN";
/// Length of a preamble, bytes.
pub const PREAMBLE_BYTES: usize = 8;

/// The first bytes on a connection: the protocol versions that a client offers or a node accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Preamble {
    /// The lowest version.
    pub version_min: u8,
    /// The highest version.
    pub version_max: u8,
}

impl Preamble {
    /// The versions that this release supports. A client sends this preamble first. A node replies with this preamble
    /// if the client offers none of these versions.
    pub const OURS: Preamble = Preamble { version_min: VERSION_MIN, version_max: VERSION };

    /// The reply of a node that chose `version`.
    pub fn chosen(version: u8) -> Preamble {
        Preamble { version_min: version, version_max: version }
    }

    /// The preamble's bytes.
    pub fn to_bytes(self) -> [u8; PREAMBLE_BYTES] {
        let [d, u, n, l, i, n2] = MAGIC;
        [d, u, n, l, i, n2, self.version_min, self.version_max]
    }

    /// Parses a preamble; `None` while it is incomplete.
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

    /// Returns the highest version that both sides support, or the refusal to send.
    pub fn negotiate(self, offered: Preamble) -> Result<u8, Refusal<'static>> {
        let version = self.version_max.min(offered.version_max);
        if version >= self.version_min.max(offered.version_min) {
            return Ok(version);
        }
        Err(Refusal {
            code: ErrorCode::Version,
            numbers: [u64::from(self.version_min), u64::from(self.version_max), 0],
            text: "no common protocol version",
        })
    }
}
