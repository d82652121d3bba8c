//! Encodes and decodes the preamble: the first eight bytes that each side sends, which negotiate the protocol version.
//!
//! ```text
//!  0                         6         7         8
//!  +-------------------------+---------+---------+
//!  | 44 55 4e 4c 49 4e       | version | version |
//!  | D  U  N  L  I  N        | min u8  | max u8  |
//!  +-------------------------+---------+---------+
//! ```
//! The client offers a range of versions. The node chooses one of these versions. In its reply, the chosen version is
//! both the lowest and the highest version. If the node supports none of the offered versions, it replies with its own
//! range, and then sends REFUSED.
//!
//! A node supports its own version of the protocol and the previous one. Later versions may only add fields at the end
//! of the preamble, HELLO, WELCOME and REFUSED, and older nodes and clients skip these fields. All other layouts may
//! change.

use crate::code::{ErrorCode, Refusal};
use crate::error::WireError;

/// The newest protocol version that this release supports.
pub const VERSION: u8 = 5;
/// The oldest protocol version that this release supports.
pub const VERSION_MIN: u8 = 4;
/// The first bytes that each side of a connection sends.
pub const MAGIC: [u8; 6] = *b"DUNLIN";
/// Length of a preamble, bytes.
pub const PREAMBLE_BYTES: usize = 8;

/// A preamble: the range of protocol versions that a client offers, or the version that a node has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Preamble {
    /// The lowest version.
    pub version_min: u8,
    /// The highest version.
    pub version_max: u8,
}

impl Preamble {
    /// The preamble with all versions that this release supports. A client sends it first. A node sends it if it
    /// supports none of the versions that the client offers.
    pub const OURS: Preamble = Preamble { version_min: VERSION_MIN, version_max: VERSION };

    /// The preamble with which a node replies if it has chosen `version`.
    pub fn chosen(version: u8) -> Preamble {
        Preamble { version_min: version, version_max: version }
    }

    /// Encodes the preamble.
    pub fn to_bytes(self) -> [u8; PREAMBLE_BYTES] {
        let [d, u, n, l, i, n2] = MAGIC;
        [d, u, n, l, i, n2, self.version_min, self.version_max]
    }

    /// Decodes a preamble; `None` while bytes are missing.
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

    /// Returns the highest version that both sides support, or the refusal to send if there is none.
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
