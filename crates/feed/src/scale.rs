//! The units of an instrument's prices and sizes, and the range of valid prices and sizes.
//!
//! Prices and sizes are always integers. One unit is 1 in the last decimal: if prices have two decimals, the price
//! 101.25 is 10125 units. The absolute value of a price or size is at most 2^53, so that a number in JSON can hold it
//! exactly.

use std::collections::BTreeMap;

use crate::decimal;

/// Largest absolute value of a price or size.
pub const UNITS_MAX: i64 = 1 << 53;
/// Largest number of decimals that a price or size may have.
pub const DECIMALS_MAX: u8 = 15;

/// The rules for an instrument's prices and sizes: numbers of decimals, tick, range of prices, and numbers of levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Number of decimals of a price: this many digits at the end of the integer follow the decimal point.
    pub price_decimals: u8,
    /// Number of decimals of a size.
    pub size_decimals: u8,
    /// Distance between two adjacent prices, in units. Every price is a multiple of it.
    pub tick: i64,
    /// Lowest price, units.
    pub price_min: i64,
    /// Highest price, units.
    pub price_max: i64,
    /// Number of levels per side that a view shows by default. The state may have more.
    pub depth: u32,
    /// Maximum number of levels on a side of a book; 0 for no limit. Only the kind `book` has this option. After each
    /// record, the book removes the worst levels beyond this number.
    pub max_depth: u32,
}

impl Default for Scale {
    fn default() -> Scale {
        let (price_min, price_max) = (-UNITS_MAX, UNITS_MAX);
        Scale { price_decimals: 0, size_decimals: 0, tick: 1, price_min, price_max, depth: 10, max_depth: 0 }
    }
}

/// The reason why no reducer can be created with the given kind and options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// There is no kind with this name.
    #[error("there is no state of kind `{kind}`: use one of {}", crate::KINDS.join(", "))]
    UnknownKind {
        /// The name of the kind.
        kind: String,
    },
    /// The kind of state has no such option.
    #[error("`{kind}` has no option `{option}`")]
    UnknownOption {
        /// The kind.
        kind: String,
        /// The option.
        option: String,
    },
    /// The value of an option is not valid.
    #[error("option `{option}`: `{value}` is not {wanted}")]
    BadValue {
        /// Name of the option.
        option: &'static str,
        /// The value.
        value: String,
        /// Description of the valid values, for the error message.
        wanted: String,
    },
}

/// The reason why a price or size is refused. The numbers are in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScaleError {
    /// A size is zero or below.
    #[error("size {size} is not above zero")]
    SizeNotPositive {
        /// The size.
        size: i64,
    },
    /// A size is above [`UNITS_MAX`].
    #[error("size {size} is above {}", UNITS_MAX)]
    SizeTooLarge {
        /// The size.
        size: i64,
    },
    /// A price is outside the range that the instrument allows.
    #[error("price {price} is outside {min} to {max}")]
    PriceOutOfRange {
        /// The price.
        price: i64,
        /// Lowest price.
        min: i64,
        /// Highest price.
        max: i64,
    },
    /// A price is not a multiple of the tick.
    #[error("price {price} is not a multiple of the tick {tick}")]
    PriceOffTick {
        /// The price.
        price: i64,
        /// Distance between two adjacent prices.
        tick: i64,
    },
}

impl Scale {
    /// Creates a scale from these options: `price_decimals`, `size_decimals`, `tick`, `price_min`, `price_max`, `depth`
    /// and, only for kind `book`, `max_depth`. `tick`, `price_min` and `price_max` are in units.
    pub fn parse(kind: &str, options: &BTreeMap<String, String>) -> Result<Scale, OptionsError> {
        let mut scale = Scale::default();
        for (option, value) in options {
            match option.as_str() {
                "price_decimals" => scale.price_decimals = decimals("price_decimals", value)?,
                "size_decimals" => scale.size_decimals = decimals("size_decimals", value)?,
                "tick" => scale.tick = number("tick", value, 1, UNITS_MAX)?,
                "price_min" => scale.price_min = number("price_min", value, -UNITS_MAX, UNITS_MAX)?,
                "price_max" => scale.price_max = number("price_max", value, -UNITS_MAX, UNITS_MAX)?,
                "max_depth" if kind == crate::BOOK => {
                    scale.max_depth = number("max_depth", value, 1, u32::MAX.into())? as u32;
                }
                "depth" => scale.depth = number("depth", value, 1, u32::MAX.into())? as u32,
                _ => return Err(OptionsError::UnknownOption { kind: kind.into(), option: option.clone() }),
            }
        }
        if scale.price_min > scale.price_max {
            let value = scale.price_max.to_string();
            let wanted = format!("at least price_min, {}", scale.price_min);
            return Err(OptionsError::BadValue { option: "price_max", value, wanted });
        }
        Ok(scale)
    }

    /// Returns the options from which [`parse`](Scale::parse) creates this scale.
    pub fn options(&self) -> BTreeMap<String, String> {
        let numbers = [
            ("price_decimals", i64::from(self.price_decimals)),
            ("size_decimals", self.size_decimals.into()),
            ("tick", self.tick),
            ("price_min", self.price_min),
            ("price_max", self.price_max),
            ("depth", self.depth.into()),
        ];
        let max_depth = (self.max_depth > 0).then_some(("max_depth", i64::from(self.max_depth)));
        let all = numbers.into_iter().chain(max_depth);
        all.map(|(name, value)| (name.to_owned(), value.to_string())).collect()
    }

    /// Checks that a price is in the instrument's range and a multiple of the tick.
    #[inline]
    pub fn check_price(&self, price: i64) -> Result<(), ScaleError> {
        if price < self.price_min || price > self.price_max {
            return Err(ScaleError::PriceOutOfRange { price, min: self.price_min, max: self.price_max });
        }
        if self.tick != 1 && price % self.tick != 0 {
            return Err(ScaleError::PriceOffTick { price, tick: self.tick });
        }
        Ok(())
    }

    /// Checks that a size is above zero and at most [`UNITS_MAX`].
    #[inline]
    pub fn check_size(&self, size: i64) -> Result<(), ScaleError> {
        match size {
            1..=UNITS_MAX => Ok(()),
            _ if size <= 0 => Err(ScaleError::SizeNotPositive { size }),
            _ => Err(ScaleError::SizeTooLarge { size }),
        }
    }

    /// Formats a price in units as a decimal number.
    pub fn price_text(&self, price: i64) -> String {
        decimal::text(price, self.price_decimals)
    }

    /// Formats a size in units as a decimal number.
    pub fn size_text(&self, size: i64) -> String {
        decimal::text(size, self.size_decimals)
    }
}

fn decimals(option: &'static str, value: &str) -> Result<u8, OptionsError> {
    number(option, value, 0, DECIMALS_MAX.into()).map(|decimals| decimals as u8)
}

fn number(option: &'static str, value: &str, min: i64, max: i64) -> Result<i64, OptionsError> {
    let parsed = value.parse().ok().filter(|number| (min..=max).contains(number));
    parsed.ok_or_else(|| {
        let wanted = format!("a whole number from {min} to {max}");
        OptionsError::BadValue { option, value: value.to_owned(), wanted }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[(&str, &str)]) -> Result<Scale, String> {
        let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Scale::parse("book", &options).map_err(|error| error.to_string())
    }

    #[test]
    fn price_scale_is_restored_from_its_reducer_options() {
        let scale = parse(&[("price_decimals", "2"), ("tick", "25"), ("price_min", "0")]).unwrap();
        assert_eq!((scale.price_decimals, scale.tick, scale.price_min), (2, 25, 0));
        assert_eq!(Scale::parse("book", &scale.options()), Ok(scale));
    }

    #[test]
    fn error_for_an_invalid_scale_option_names_the_option() {
        let refused = |name, value| parse(&[(name, value)]).unwrap_err();
        assert_eq!(
            refused("tick", "0"),
            "option `tick`: `0` is not a whole number from 1 to 9007199254740992"
        );
        assert_eq!(
            refused("price_decimals", "16"),
            "option `price_decimals`: `16` is not a whole number from 0 to 15"
        );
        assert_eq!(refused("ticks", "1"), "`book` has no option `ticks`");
        let crossed = parse(&[("price_min", "5"), ("price_max", "4")]).unwrap_err();
        assert_eq!(crossed, "option `price_max`: `4` is not at least price_min, 5");
    }
}
