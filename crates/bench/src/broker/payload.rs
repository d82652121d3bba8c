//! The payload of the records in suite `broker`. All protocols carry the same payload: 64 bytes of plain text, which
//! HTTP transmits unchanged.

/// The size of the payload in bytes.
pub const BYTES: usize = 64;
const DIGITS: usize = 16;

/// A payload of plain text that contains a sequence number and a time. The same buffer is overwritten for each record.
#[derive(Debug)]
pub struct SequencePayload([u8; BYTES]);

impl Default for SequencePayload {
    fn default() -> Self {
        Self([b'.'; BYTES])
    }
}

impl SequencePayload {
    /// Writes the sequence number and the time into the payload, and returns the payload.
    #[inline]
    pub fn encode(&mut self, seq: u64, time_ns: u64) -> &[u8] {
        write(&mut self.0[..DIGITS], seq);
        write(&mut self.0[DIGITS..2 * DIGITS], time_ns);
        &self.0
    }

    /// Returns the time that a payload contains. Returns `None` if the payload is malformed, or if its sequence number
    /// is not `seq`.
    #[inline]
    pub fn decode_time(payload: &[u8], seq: u64) -> Option<u64> {
        let fields: &[u8; BYTES] = payload.try_into().ok()?;
        let is_valid = read(&fields[..DIGITS])? == seq && fields[2 * DIGITS..] == [b'.'; BYTES - 2 * DIGITS];
        if is_valid { read(&fields[DIGITS..2 * DIGITS]) } else { None }
    }
}

#[inline]
fn write(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

#[inline]
fn read(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_or_damaged_payload_yields_no_send_time() {
        let mut payload = SequencePayload::default();
        let mut bytes = payload.encode(7, u64::MAX - 1).to_vec();
        assert_eq!(SequencePayload::decode_time(&bytes, 7), Some(u64::MAX - 1));
        assert_eq!(SequencePayload::decode_time(&bytes, 8), None);
        assert_eq!(SequencePayload::decode_time(&bytes[..63], 7), None);
        bytes[40] = b'x';
        assert_eq!(SequencePayload::decode_time(&bytes, 7), None);
    }
}
