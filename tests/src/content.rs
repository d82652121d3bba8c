//! The payload of a test record. It identifies the record, and shows whether every byte is intact.
//!
//! The layout is `u64 n, u32 writer, u32 last (1 or 0), u64 check`. The remaining bytes are filler, and follow from `n`
//! and `writer`.

/// The smallest size of a payload in bytes.
pub const BYTES_MIN: usize = 24;

/// The contents of a test record's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestPayload {
    /// The number of the writer that published the record. A writer is a process that publishes.
    pub writer: u32,
    /// The record's number in the writer's ledger, from 1.
    pub n: u64,
    /// Whether the record is the writer's last one.
    pub last: bool,
}

impl TestPayload {
    /// Encodes a payload of `bytes` bytes.
    pub fn encode(&self, bytes: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.max(BYTES_MIN));
        out.extend_from_slice(&self.n.to_le_bytes());
        out.extend_from_slice(&self.writer.to_le_bytes());
        out.extend_from_slice(&u32::from(self.last).to_le_bytes());
        out.extend_from_slice(&self.check(bytes.max(BYTES_MIN)).to_le_bytes());
        let mut state = self.check(0);
        while out.len() < bytes {
            state = mix(state);
            out.push(state as u8);
        }
        out
    }

    /// Decodes a payload; returns `None` if any byte is wrong.
    pub fn decode(bytes: &[u8]) -> Option<TestPayload> {
        let n = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let writer = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
        let last = match u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?) {
            0 => false,
            1 => true,
            _ => return None,
        };
        let content = TestPayload { writer, n, last };
        (content.encode(bytes.len()) == bytes).then_some(content)
    }

    fn check(&self, bytes: usize) -> u64 {
        mix(mix(self.n ^ mix(self.writer.into())) ^ (bytes as u64) << 1 ^ u64::from(self.last))
    }
}

fn mix(value: u64) -> u64 {
    let value =
        (value ^ (value >> 30)).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value ^ (value >> 27)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_byte_in_a_test_payload_is_detected() {
        let content = TestPayload { writer: 3, n: 77, last: false };
        let bytes = content.encode(100);
        assert_eq!(TestPayload::decode(&bytes), Some(content));
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 1;
            assert_eq!(TestPayload::decode(&broken), None, "byte {at}");
        }
        assert_eq!(TestPayload::decode(&bytes[..99]), None);
    }
}
