//! Reads the query parameters of a URL. Refuses repeated and unknown parameters.

use std::time::{SystemTime, UNIX_EPOCH};

use dunlin::wire::http::query_pairs;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::problem::Problem;

/// The parameters in the query string of an HTTP request.
#[derive(Debug)]
pub(super) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    pub(super) fn parse(text: Option<&str>, known: &[&str]) -> Result<QueryParameters, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in query_pairs(text.unwrap_or("")) {
            let (name, value) = pair.map_err(|error| Problem::bad_request(error.to_string()))?;
            if !known.contains(&name.as_str()) {
                let known = known.join(", ");
                return Err(Problem::bad_request(format!(
                    "unknown parameter {name:?}; expected one of {known}"
                )));
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(Problem::bad_request(format!("parameter {name} is set twice")));
            }
            pairs.push((name, value));
        }
        Ok(QueryParameters(pairs))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The parameter's value, a number from 1 to `max`; `default` if the parameter is missing.
    pub(super) fn count(&self, name: &str, default: usize, max: usize) -> Result<usize, Problem> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (1..=max).contains(number));
        number
            .ok_or_else(|| Problem::bad_request(format!("{name}={text}: expected a number from 1 to {max}")))
    }

    /// The parameter's value, `true` or `false`. A parameter without a value is true, and a missing parameter is false.
    pub(super) fn switch(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(text) => Err(Problem::bad_request(format!("{name}={text}: expected true or false"))),
        }
    }
}

/// Parses a time: nanoseconds since the Unix epoch, or RFC 3339. `None` if the text is neither.
pub(super) fn time_ns(text: &str) -> Option<u64> {
    if let Ok(ns) = text.parse() {
        return Some(ns);
    }
    unix_ns(humantime::parse_rfc3339_weak(text).ok()?)
}

/// Converts a time to nanoseconds since the Unix epoch; `None` for a time before the epoch.
pub(super) fn unix_ns(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH).ok()?.as_nanos().try_into().ok()
}

pub(super) fn format_time(ns: u64) -> String {
    let time = UNIX_EPOCH + std::time::Duration::from_nanos(ns);
    humantime::format_rfc3339_millis(time).to_string()
}

/// Reads a 64-bit number from JSON; `None` for null. The number may be text, so that clients which read JSON numbers as
/// floating point can send it exactly.
pub(super) fn whole_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a whole number, or its digits as text")]
    enum Whole {
        Number(u64),
        Digits(String),
    }
    match Option::<Whole>::deserialize(from)? {
        None => Ok(None),
        Some(Whole::Number(number)) => Ok(Some(number)),
        Some(Whole::Digits(digits)) => {
            let wrong = |_| D::Error::custom(format!("{digits:?} is not a 64-bit whole number"));
            digits.parse().map(Some).map_err(wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_unknown_or_repeated_query_parameters_are_refused() {
        let parse = |text| QueryParameters::parse(Some(text), &["from", "name"]);
        assert_eq!(parse("from=latest").unwrap().get("from"), Some("latest"));
        for text in ["form=latest", "from=1&from=2", "name=%ff"] {
            assert_eq!(parse(text).unwrap_err().status(), 400, "{text}");
        }
    }

    #[test]
    fn query_time_is_a_number_or_rfc_3339_text() {
        assert_eq!(time_ns("1700000000000000001"), Some(1_700_000_000_000_000_001));
        assert_eq!(time_ns("1970-01-01T00:00:01.5Z"), Some(1_500_000_000));
        assert_eq!(
            (time_ns("yesterday"), time_ns("-1"), time_ns("1969-01-01T00:00:00Z")),
            (None, None, None)
        );
        assert_eq!(format_time(1_500_000_000), "1970-01-01T00:00:01.500Z");
    }
}
