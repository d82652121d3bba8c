//! The parameters of a measurement, in a fixed order.
//!
//! A row of a run is identified by its target, case, metric and parameters. The order of the parameters must therefore
//! always be the same, whichever code adds them. The names in [`KNOWN`] come first, in the order of [`KNOWN`]; other
//! names follow in alphabetical order.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Common names of parameters, in the order in which they are printed.
pub const KNOWN: [&str; 22] = [
    "use",
    "transport",
    "topology",
    "wait",
    "copy",
    "driver",
    "pattern",
    "bytes",
    "batch",
    "messages",
    "subscribers",
    "topics",
    "clients",
    "rate",
    "in_flight",
    "nodes",
    "workers",
    "entities",
    "standbys",
    "rtt_ms",
    "pin",
    "length",
];

/// The value of a parameter: a number or a word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParamValue {
    /// A count or a size.
    Number(u64),
    /// A word, such as the name of a transport.
    Text(String),
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl From<u64> for ParamValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for ParamValue {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<&str> for ParamValue {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Text(text.to_owned()), Self::Number)
    }
}

/// The parameters of a measurement, in a fixed order of names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Params(Vec<(String, ParamValue)>);

impl Params {
    /// Creates a list without parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter. If a parameter with this name exists, the new value replaces the old one.
    pub fn with(mut self, name: &str, value: impl Into<ParamValue>) -> Self {
        self.0.retain(|(known, _)| known != name);
        let position = self.0.partition_point(|(known, _)| rank(known) < rank(name));
        self.0.insert(position, (name.to_owned(), value.into()));
        self
    }

    /// Returns the value of a parameter; `None` if there is no such parameter.
    pub fn get(&self, name: &str) -> Option<&ParamValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Whether every name in `pairs` is a parameter, and has the value in `pairs`.
    pub fn contains_all(&self, pairs: &[(&str, &str)]) -> bool {
        pairs.iter().all(|&(name, value)| self.get(name) == Some(&ParamValue::from(value)))
    }

    /// Iterates over the parameters in their fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ParamValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

fn rank(name: &str) -> (usize, &str) {
    let position = KNOWN.iter().position(|known| *known == name);
    (position.unwrap_or(KNOWN.len()), name)
}

impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, value)) in self.iter().enumerate() {
            let separator = if position == 0 { "" } else { " " };
            write!(f, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

impl Serialize for Params {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Params;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of parameters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
                let mut params = Params::new();
                while let Some((name, value)) = map.next_entry::<String, ParamValue>()? {
                    params = params.with(&name, value);
                }
                Ok(params)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_order_does_not_depend_on_insertion_order() {
        let one = Params::new().with("bytes", 64u64).with("zeta", 1u64).with("transport", "tcp");
        let other = Params::new().with("transport", "tcp").with("bytes", 64u64).with("zeta", 1u64);
        assert_eq!(one, other);
        assert_eq!(one.to_string(), "transport=tcp bytes=64 zeta=1");
    }

    #[test]
    fn json_of_parameters_has_a_fixed_order_and_is_read_back_equal() {
        let params = Params::new().with("bytes", 64u64).with("transport", "tcp");
        let json = serde_json::to_string(&params).unwrap();
        assert_eq!(json, r#"{"transport":"tcp","bytes":64}"#);
        assert_eq!(serde_json::from_str::<Params>(&json).unwrap(), params);
    }

    #[test]
    fn parameter_pattern_matches_only_equal_values() {
        let params = Params::new().with("bytes", 64u64).with("transport", "tcp");
        assert!(params.contains_all(&[("bytes", "64"), ("transport", "tcp")]));
        assert!(!params.contains_all(&[("bytes", "640")]));
        assert!(!params.contains_all(&[("topics", "1")]));
    }
}
