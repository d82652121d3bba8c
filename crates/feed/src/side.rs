//! The two sides of an order book.

use std::fmt;

/// A side of an order book: bids (buyers) or asks (sellers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The buyers' side, on which the highest price is best.
    Bid,
    /// The sellers' side, on which the lowest price is best.
    Ask,
}

impl Side {
    /// Both sides, bids first.
    pub const BOTH: [Side; 2] = [Side::Bid, Side::Ask];

    /// Returns the byte that encodes the side: 1 for bid, 2 for ask.
    pub fn code(self) -> u8 {
        match self {
            Side::Bid => 1,
            Side::Ask => 2,
        }
    }

    /// Returns the side that a byte encodes; `None` if the byte is not valid.
    pub fn from_code(code: u8) -> Option<Side> {
        match code {
            1 => Some(Side::Bid),
            2 => Some(Side::Ask),
            _ => None,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Bid => "bid",
            Side::Ask => "ask",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Side;

    #[test]
    fn bid_and_ask_are_read_back_from_their_codes() {
        for side in [Side::Bid, Side::Ask] {
            assert_eq!(Side::from_code(side.code()), Some(side));
        }
        assert_eq!(Side::from_code(0), None);
    }
}
