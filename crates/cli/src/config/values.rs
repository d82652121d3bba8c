//! Types of values that the configuration and the command line accept.

use std::str::FromStr;

/// A positive number of bytes, which the user writes as `4096`, `64MiB` (2²⁰) or `10MB` (10⁶).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

const UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: Option<u64> = number.replace('_', "").parse().ok();
        let factor = UNITS.iter().find(|(name, _)| unit.trim().eq_ignore_ascii_case(name)).map(|unit| unit.1);
        match number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor)) {
            Some(bytes) if bytes > 0 => Ok(ByteSize(bytes)),
            _ => Err("expected a size over 0, like 64MiB, 10MB or 4096".into()),
        }
    }
}

/// A configuration value of type `T`, or the word `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueOrOff<T>(pub Option<T>);

impl<T: FromStr> FromStr for ValueOrOff<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<ValueOrOff<T>, T::Err> {
        if text == "off" { Ok(ValueOrOff(None)) } else { text.parse().map(|value| ValueOrOff(Some(value))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_units_are_parsed() {
        for (text, bytes) in
            [("4096", 4096), ("64MiB", 64 << 20), ("10MB", 10_000_000), ("1 kb", 1000), ("2g", 2 << 30)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "0", "MiB", "-1", "1.5MiB", "12QB", "99999999999999999999", "99999999999GiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
