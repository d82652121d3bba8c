//! The two sides of an order book.

use std::fmt;

/// Who wants to trade at a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Buyers; the best is the highest price.
    Bid,
    /// Sellers; the best is the lowest price.
    Ask,
}

impl Side {
    /// Both, bids first.
    pub const BOTH: [Side; 2] = [Side::Bid, Side::Ask];

    /// Its byte in a record: 1 bid, 2 ask.
    pub fn code(self) -> u8 {
        match self {
            Side::Bid => 1,
            Side::Ask => 2,
        }
    }

    /// The side of a byte.
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
    fn side_is_read_back_from_its_byte() {
        for side in [Side::Bid, Side::Ask] {
            assert_eq!(Side::from_code(side.code()), Some(side));
        }
        assert_eq!(Side::from_code(0), None);
    }
}
