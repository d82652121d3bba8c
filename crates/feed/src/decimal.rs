//! Converts decimal numbers in texts to integers, and back to text, without floats. An integer counts units of the last
//! decimal.

/// The reason why a text cannot be converted to an integer with the given number of decimals.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecimalError {
    /// The text is not a decimal number.
    #[error("`{text}` is not a decimal number")]
    NotANumber {
        /// The text.
        text: String,
    },
    /// The number has more decimals than allowed, and not all of the additional decimals are zero.
    #[error("`{text}` has more than {decimals} decimals")]
    TooFine {
        /// The text.
        text: String,
        /// Number of allowed decimals.
        decimals: u8,
    },
    /// The number is too large for an `i64`.
    #[error("`{text}` is too large")]
    TooLarge {
        /// The text.
        text: String,
    },
}

/// Parses a text into an integer: with two decimals, `-12.5` becomes -1250. Decimals beyond `decimals` must be zero.
/// Exponents are not accepted.
pub fn parse(text: &str, decimals: u8) -> Result<i64, DecimalError> {
    let not_a_number = || DecimalError::NotANumber { text: text.to_owned() };
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || unsigned.ends_with('.') {
        return Err(not_a_number());
    }
    let kept = fraction.len().min(decimals.into());
    if fraction.bytes().skip(kept).any(|byte| byte != b'0') {
        return Err(DecimalError::TooFine { text: text.to_owned(), decimals });
    }
    let zeros = std::iter::repeat_n(b'0', usize::from(decimals) - kept);
    let all = whole.bytes().chain(fraction.bytes().take(kept)).chain(zeros);
    let sign = if unsigned.len() < text.len() { -1 } else { 1 };
    all.into_iter()
        .try_fold(0_i64, |sum, digit| sum.checked_mul(10)?.checked_add(sign * i64::from(digit - b'0')))
        .ok_or_else(|| DecimalError::TooLarge { text: text.to_owned() })
}

/// Like [`parse`], but reads bytes, and also accepts exponents, as in `2.6e-06`. Intended for numbers that a program
/// wrote.
#[inline]
pub fn read(text: &[u8], decimals: u8) -> Result<i64, DecimalError> {
    let failed = |make: fn(String) -> DecimalError| make(String::from_utf8_lossy(text).into_owned());
    let not_a_number = || failed(|text| DecimalError::NotANumber { text });
    let too_large = || failed(|text| DecimalError::TooLarge { text });
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (digits, exponent) = match rest.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&rest[..at], exponent(&rest[at + 1..]).ok_or_else(not_a_number)?),
        None => (rest, 0),
    };
    let point = digits.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = point.map_or((digits, &b"0"[..]), |at| (&digits[..at], &digits[at + 1..]));
    if whole.is_empty() || fraction.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return Err(not_a_number());
    }
    let zeros = fraction.iter().rev().take_while(|byte| **byte == b'0').count();
    let fraction = &fraction[..fraction.len() - zeros];
    let value = whole
        .iter()
        .chain(fraction)
        .try_fold(0_i64, |sum, digit| sum.checked_mul(10)?.checked_add(i64::from(digit - b'0')));
    let value = value.ok_or_else(too_large)?;
    let shift = i32::from(decimals) + exponent - fraction.len() as i32;
    let power = 10_i64.checked_pow(shift.unsigned_abs());
    let units = match power {
        _ if value == 0 => 0,
        Some(power) if shift >= 0 => value.checked_mul(power).ok_or_else(too_large)?,
        Some(power) if value % power == 0 => value / power,
        None if shift >= 0 => return Err(too_large()),
        _ => {
            return Err(DecimalError::TooFine { text: String::from_utf8_lossy(text).into_owned(), decimals });
        }
    };
    Ok(if negative { -units } else { units })
}

/// Parses an exponent: a whole number of at most three digits, with an optional sign.
fn exponent(text: &[u8]) -> Option<i32> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let sound = (1..=3).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let value = digits.iter().fold(0, |sum, digit| sum * 10 + i32::from(digit.wrapping_sub(b'0')));
    sound.then_some(if negative { -value } else { value })
}

/// Formats an integer as a decimal number: with two decimals, -1250 becomes `-12.50`.
pub fn text(units: i64, decimals: u8) -> String {
    if decimals == 0 {
        return units.to_string();
    }
    let sign = if units < 0 { "-" } else { "" };
    let width = usize::from(decimals) + 1;
    let mut digits = format!("{:0width$}", units.unsigned_abs());
    digits.insert(digits.len() - usize::from(decimals), '.');
    format!("{sign}{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_number_is_read_back_as_written() {
        for (units, decimals, written) in [(-1250, 2, "-12.50"), (5, 3, "0.005"), (0, 1, "0.0"), (7, 0, "7")]
        {
            assert_eq!(text(units, decimals), written);
            assert_eq!(parse(written, decimals), Ok(units));
        }
        assert_eq!(text(i64::MIN, 15), "-9223.372036854775808");
        assert_eq!(parse("-9223372036854775808", 0), Ok(i64::MIN));
    }

    #[test]
    fn exponent_and_float_notations_are_read_exactly() {
        let exact = [
            ("78318.0", 1, 783_180),
            ("2.6e-06", 8, 260),
            ("1e-08", 8, 1),
            ("-1.5E+2", 0, -150),
            ("0.0", 0, 0),
            ("0e999", 2, 0),
            ("1.10000000000000000000000000", 1, 11),
            ("9223372036854775807", 0, i64::MAX),
            ("20", 2, 2000),
        ];
        for (written, decimals, units) in exact {
            assert_eq!(read(written.as_bytes(), decimals), Ok(units), "{written}");
        }
        for written in ["", "-", ".5", "5.", "1e", "1e1000", "1.2.3", "+1", "0x1", "1 ", "NaN", "--1"] {
            let error = read(written.as_bytes(), 2).unwrap_err();
            assert_eq!(error, DecimalError::NotANumber { text: written.to_owned() });
        }
        assert_eq!(read(b"1.234", 2).unwrap_err().to_string(), "`1.234` has more than 2 decimals");
        assert_eq!(read(b"1e-300", 2).unwrap_err().to_string(), "`1e-300` has more than 2 decimals");
        for written in ["1e300", "9223372036854775808", "9e17"] {
            assert_eq!(read(written.as_bytes(), 2), Err(DecimalError::TooLarge { text: written.to_owned() }));
        }
    }

    #[test]
    fn inexact_or_malformed_number_is_refused() {
        assert_eq!(parse("1.2300", 2), Ok(123));
        assert_eq!(parse("1.234", 2).unwrap_err().to_string(), "`1.234` has more than 2 decimals");
        assert_eq!(
            parse("92233720368547758080", 0).unwrap_err().to_string(),
            "`92233720368547758080` is too large"
        );
        for garbage in ["", "-", ".5", "1.", "1e5", "+1", "1.2.3", "0x1", " 1"] {
            assert!(matches!(parse(garbage, 2), Err(DecimalError::NotANumber { .. })), "{garbage}");
        }
    }
}
