//! The payload that all measured systems transfer, and the check that every receiver makes.
//!
//! The first and the last word are the sequence number; the words between them are a constant. If payloads are copied,
//! the receiver reads each payload completely, and checks the sum of the words. If payloads are passed by reference,
//! the receiver checks only the first and the last word of each: 10 million payloads of 64 KB per second are 640 GB/s,
//! which no receiver can read. The C programs in `peers/zmq` use the same payload and the same check.

const WORD: usize = 8;

/// The value of every word between the first and the last.
pub const FILLER: u64 = 0x5bd1_e995_9e37_79b9;

/// The smallest size of a payload in bytes. Such a payload consists of the sequence number twice.
pub const BYTES_MIN: usize = 2 * WORD;

/// A payload of a fixed size that contains a sequence number. The same buffer is overwritten for each record.
#[derive(Clone, Debug)]
pub struct NumberedPayload {
    bytes: Vec<u8>,
}

impl NumberedPayload {
    /// Creates a payload of `bytes` bytes, which must be a multiple of eight and at least [`BYTES_MIN`].
    pub fn new(bytes: usize) -> Self {
        assert!(
            bytes >= BYTES_MIN && bytes.is_multiple_of(WORD),
            "a payload of {bytes} bytes cannot be checked"
        );
        let bytes = FILLER.to_le_bytes().into_iter().cycle().take(bytes).collect();
        Self { bytes }
    }

    /// Writes the sequence number `seq` into the payload, and returns the payload.
    pub fn with_seq(&mut self, seq: u64) -> &[u8] {
        let word = seq.to_le_bytes();
        let last = self.bytes.len() - WORD;
        self.bytes[..WORD].copy_from_slice(&word);
        self.bytes[last..].copy_from_slice(&word);
        &self.bytes
    }
}

impl NumberedPayload {
    /// Writes the sequence number `seq` and, as the second word, the time `time_ns` into the payload, and returns the
    /// payload. Receivers must check such a payload with [`ReadExtent::AllButTime`] or [`ReadExtent::Ends`].
    pub fn with_seq_and_time(&mut self, seq: u64, time_ns: u64) -> &[u8] {
        self.with_seq(seq);
        self.bytes[WORD..2 * WORD].copy_from_slice(&time_ns.to_le_bytes());
        &self.bytes
    }

    /// Returns the time in the second word of a payload, or 0 if the payload is too short.
    pub fn time_of(payload: &[u8]) -> u64 {
        payload.as_chunks().0.get(1).map_or(0, |word| u64::from_le_bytes(*word))
    }
}

/// Which part of each payload a receiver reads and checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadExtent {
    /// All words.
    All,
    /// All bytes except the second word, which is a time.
    AllButTime,
    /// The first and the last word.
    Ends,
}

impl ReadExtent {
    /// Returns how many bytes a receiver reads of each payload, if the payloads have `payload` bytes.
    pub fn bytes(self, payload: usize) -> usize {
        match self {
            Self::All | Self::AllButTime => payload,
            Self::Ends => BYTES_MIN.min(payload),
        }
    }

    /// Whether the payload is intact and contains the sequence number `seq`.
    #[inline]
    pub fn check(self, payload: &[u8], seq: u64) -> bool {
        match self {
            Self::All => check_all(payload, seq, 0),
            Self::AllButTime => {
                check_all(payload, seq, NumberedPayload::time_of(payload).wrapping_sub(FILLER))
            }
            Self::Ends => check_ends(payload, seq),
        }
    }
}

#[inline]
fn check_ends(payload: &[u8], seq: u64) -> bool {
    let word = seq.to_le_bytes();
    payload.len() >= BYTES_MIN && payload[..WORD] == word && payload[payload.len() - WORD..] == word
}

/// Whether the sum of the words equals the expected sum plus `extra`. `extra` is the difference that a time in the
/// second word makes.
#[inline]
fn check_all(payload: &[u8], seq: u64, extra: u64) -> bool {
    // Payloads of 64 bytes have a faster check, so that the check does not take longer than the delivery.
    if let Ok(small) = <&[u8; 64]>::try_from(payload) {
        return check_words(small.as_chunks().0, seq, extra);
    }
    let (words, rest) = payload.as_chunks();
    rest.is_empty() && words.len() >= 2 && check_words(words, seq, extra)
}

#[inline(always)]
fn check_words(words: &[[u8; WORD]], seq: u64, extra: u64) -> bool {
    let word = |position: usize| u64::from_le_bytes(words[position]);
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    let filler_sum = FILLER.wrapping_mul(words.len() as u64 - 2).wrapping_add(extra);
    word(0) == seq && word(words.len() - 1) == seq && sum == filler_sum.wrapping_add(seq.wrapping_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_with_a_wrong_sequence_number_is_refused() {
        for bytes in [16, 64, 1024, 65536] {
            let mut payload = NumberedPayload::new(bytes);
            let bytes = payload.with_seq(7).to_vec();
            for extent in [ReadExtent::All, ReadExtent::Ends] {
                assert!(extent.check(&bytes, 7));
                assert!(!extent.check(&bytes, 8));
                assert!(!extent.check(&bytes[8..], 7));
            }
        }
    }

    #[test]
    fn full_payload_check_finds_a_flipped_bit_in_the_middle() {
        let mut bytes = NumberedPayload::new(1024).with_seq(7).to_vec();
        bytes[500] ^= 1;
        assert!(!ReadExtent::All.check(&bytes, 7));
        assert_eq!(ReadExtent::Ends.bytes(1024), 16);
    }
}
