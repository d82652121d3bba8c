//! Hashes the parts of a state, such as price levels or keys. The checksum of the state is the wrapping sum of these
//! hashes.
//!
//! The sum does not depend on the order of the parts. If a part changes, only the old hash of this part is subtracted
//! and the new hash added. `docs/feeds.md` describes the hashes for clients in other languages.

const BID: u64 = 0x9e37_79b9_7f4a_7c15;
const ASK: u64 = 0xc2b2_ae3d_27d4_eb4f;
const QUEUE: u64 = 0x1656_67b1_9e37_79f9;
const VALUE: u64 = 0x27d4_eb2f_1656_67c5;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

use crate::side::Side;

#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(FACTOR);
    (product as u64) ^ ((product >> 64) as u64)
}

#[inline(always)]
fn start(side: Side) -> u64 {
    [BID, ASK][side as usize]
}

/// Hash of a price level of an order book.
#[inline(always)]
pub(crate) fn level(side: Side, price: i64, size: i64) -> u64 {
    mix(mix(start(side), price as u64), size as u64)
}

/// Hash of an order.
#[inline(always)]
pub(crate) fn order(side: Side, id: u64, price: i64, size: i64) -> u64 {
    mix(mix(mix(start(side), id), price as u64), size as u64)
}

/// Hash of two orders that follow each other in the queue of a price level.
#[inline(always)]
pub(crate) fn neighbours(ahead: u64, behind: u64) -> u64 {
    mix(mix(QUEUE, ahead), behind)
}

/// Hash of a key and its value, for states that store the last value of each key.
pub(crate) fn value(key: &[u8], value: &[u8]) -> u64 {
    hash_bytes(hash_bytes(VALUE, key), value)
}

fn hash_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let mut hash = mix(hash, bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test states the expected hashes as numbers, because clients in other languages must compute the same hashes.
    #[test]
    fn feed_checksums_equal_the_fixed_expected_numbers() {
        assert_eq!(level(Side::Bid, 10_125, 7), 0x39a7_f879_76f0_e3ce);
        assert_eq!(level(Side::Ask, -1, 1), 0x03cb_e845_5a1e_22c6);
        assert_eq!(order(Side::Bid, 42, 10_125, 7), 0xd30d_6103_d06d_d670);
        assert_eq!(neighbours(42, 43), 0x0de7_6104_de4b_7093);
        assert_eq!(value(b"key", b"a value of many bytes"), 0x84a8_77be_8618_470d);
    }
}
