//! Parses the query string of a URL, such as `a=1&b=2`.

/// The error for a malformed query string of an HTTP request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A percent sign is not followed by two hexadecimal digits.
    #[error("{0:?} has a % without two hexadecimal digits after it")]
    Percent(String),
    /// The decoded text is not valid UTF-8.
    #[error("{0:?} does not decode to UTF-8")]
    Utf8(String),
}

/// The names and values in a query string, decoded and in order. A name without `=` gets an empty value.
pub fn query_pairs(query: &str) -> impl Iterator<Item = Result<(String, String), QueryError>> + '_ {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decode(name)?, decode(value)?))
    })
}

fn decode(text: &str) -> Result<String, QueryError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = rest.next().and_then(hex).zip(rest.next().and_then(hex));
                let (high, low) = digits.ok_or_else(|| QueryError::Percent(text.to_owned()))?;
                high << 4 | low
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| QueryError::Utf8(text.to_owned()))
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &str) -> Result<Vec<(String, String)>, QueryError> {
        query_pairs(query).collect()
    }

    #[test]
    fn query_pairs_are_decoded_in_order_and_names_may_repeat() {
        let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        assert_eq!(
            pairs("from=7-1042&name=a+b%3D%C3%A4&&flag&name="),
            Ok(owned(&[("from", "7-1042"), ("name", "a b=ä"), ("flag", ""), ("name", "")]))
        );
        assert_eq!(pairs(""), Ok(Vec::new()));
    }

    #[test]
    fn invalid_escapes_and_utf8_are_refused() {
        for query in ["a=%", "a=%2", "a=%zz", "%+1=x"] {
            assert!(matches!(pairs(query), Err(QueryError::Percent(_))), "{query}");
        }
        assert!(matches!(pairs("a=%ff"), Err(QueryError::Utf8(_))));
    }
}
