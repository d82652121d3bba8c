//! An order book of price levels at one moment, from which a snapshot is written.

use dunlin_topic::FrozenState;

use crate::ladder::{self, FrozenLadder};
use crate::side::Side;
use crate::snapshot::{self, StateKind};

/// The part of an order book of price levels that is needed to write a snapshot: the levels of both sides.
#[derive(Debug)]
pub(super) struct FrozenBook {
    halves: [FrozenLadder<i64>; 2],
}

impl FrozenBook {
    pub(super) fn new(halves: [FrozenLadder<i64>; 2]) -> FrozenBook {
        FrozenBook { halves }
    }
}

impl FrozenState for FrozenBook {
    fn write(&self, out: &mut Vec<u8>) {
        let [bids, asks] = &self.halves;
        snapshot::write_head(out, StateKind::Book, bids.len(), asks.len());
        for (side, half) in [(Side::Bid, bids), (Side::Ask, asks)] {
            for (key, size) in half.iter() {
                out.extend_from_slice(&ladder::key(side, key).to_le_bytes());
                out.extend_from_slice(&size.to_le_bytes());
            }
        }
    }
}
