//! Reads measured series of numbers. An example is the electricity demand of England and Wales for each half hour
//! (Taylor 2003), from the package `pmdarima`.
//!
//! The file with this series belongs to a third party, and is not part of the repository: `cargo xtask data` downloads
//! it.

/// A series of numbers that were measured at equal intervals, such as the load of each half hour.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeSeries {
    values: Vec<f64>,
    highest: f64,
}

/// Why a text is not a series of numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeSeriesError {
    /// The text contains no list of numbers in brackets.
    #[error("the text contains no list of numbers from `[` to `]`")]
    NoList,
    /// An element of the list is not a number above 0.
    #[error("element {position} of the list, {text:?}, is not a number above 0")]
    NoNumber {
        /// The text of the element.
        text: String,
        /// The position of the element in the list, counted from 1.
        position: usize,
    },
    /// The list is too short or too long.
    #[error("the list has {count} values: it must have 2 to {most}")]
    Count {
        /// The number of values in the list.
        count: usize,
        /// The largest allowed number of values.
        most: usize,
    },
}

const VALUES_MAX: usize = 1_000_000;

impl TimeSeries {
    /// Creates a series from values, which must be above 0.
    pub fn new(values: Vec<f64>) -> Result<TimeSeries, TimeSeriesError> {
        if !(2..=VALUES_MAX).contains(&values.len()) {
            return Err(TimeSeriesError::Count { count: values.len(), most: VALUES_MAX });
        }
        if let Some(position) = values.iter().position(|value| !(value.is_finite() && *value > 0.0)) {
            return Err(TimeSeriesError::NoNumber {
                text: values[position].to_string(),
                position: position + 1,
            });
        }
        let highest = values.iter().copied().fold(0.0, f64::max);
        Ok(TimeSeries { values, highest })
    }

    /// Finds the longest list of numbers in a text, in the notation of Python or JSON, and parses it.
    pub fn parse(text: &str) -> Result<TimeSeries, TimeSeriesError> {
        let lists = text.match_indices('[').filter_map(|(at, _)| {
            let rest = &text[at + 1..];
            Some(&rest[..rest.find(']')?])
        });
        let numbers = lists.filter(|list| list.trim_start().starts_with(|c: char| c.is_ascii_digit()));
        let list = numbers.max_by_key(|list| list.len()).ok_or(TimeSeriesError::NoList)?;
        let values = list.split(',').map(str::trim).filter(|text| !text.is_empty()).enumerate();
        let values = values.map(|(at, text)| {
            let number =
                || TimeSeriesError::NoNumber { text: text.chars().take(20).collect(), position: at + 1 };
            text.parse().map_err(|_| number())
        });
        TimeSeries::new(values.collect::<Result<_, _>>()?)
    }

    /// Returns the value at a position. Interpolates linearly between two values. After the last value, the series
    /// begins again.
    pub fn at(&self, position: f64) -> f64 {
        let count = self.values.len();
        let low = position.floor();
        let index = (low as i64).rem_euclid(count as i64) as usize;
        let (a, b) = (self.values[index], self.values[(index + 1) % count]);
        a + (b - a) * (position - low)
    }

    /// Returns the highest value.
    pub fn highest(&self) -> f64 {
        self.highest
    }

    /// Returns the number of values, which is never 0.
    #[expect(clippy::len_without_is_empty, reason = "a series is never empty")]
    pub fn len(&self) -> usize {
        self.values.len()
    }
}
