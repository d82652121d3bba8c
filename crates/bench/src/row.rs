//! Rows of measured figures, and sets of rows.
//!
//! Invariant: no two rows of a set have the same target, case, metric and parameters, so that a ratio refers to exactly
//! one row.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::metric;
use crate::params::Params;
use crate::stats::Summary;

/// A row: the figure of one metric for one measured system, as median, minimum and maximum over all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureRow {
    /// The suite, such as `spot`.
    pub suite: String,
    /// The case, such as `throughput`.
    pub case: String,
    /// The target, which is the measured system: `dunlin`, `libzmq`, `nats`, `raw` and so on.
    pub target: String,
    /// The parameters. Two rows with the same case, target and metric have different parameters.
    pub params: Params,
    /// The metric, such as `msgs_per_s`.
    pub metric: String,
    /// The unit of the metric.
    pub unit: String,
    /// The number of runs that the row summarises.
    pub runs: u64,
    /// The median of the figure over the runs.
    pub median: f64,
    /// The minimum of the figure over the runs.
    pub min: f64,
    /// The maximum of the figure over the runs.
    pub max: f64,
    /// Whether the sequence number and the contents of each counted delivery were checked.
    pub checked: bool,
    /// A note without which a reader could misunderstand the figure, for example that a peer did not reach its known
    /// figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether a ratio with this row would be unfair. The note then gives the reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfair: bool,
}

impl FigureRow {
    /// Creates a row from the summary of the runs.
    pub fn new(
        suite: &str,
        case: &str,
        target: &str,
        params: &Params,
        metric: &str,
        summary: Summary,
        checked: bool,
    ) -> Self {
        Self {
            suite: suite.to_owned(),
            case: case.to_owned(),
            target: target.to_owned(),
            params: params.clone(),
            metric: metric.to_owned(),
            unit: metric::unit(metric).to_owned(),
            runs: summary.runs,
            median: summary.median,
            min: summary.min,
            max: summary.max,
            checked,
            note: None,
            unfair: false,
        }
    }

    /// Returns the summary of the runs.
    pub fn summary(&self) -> Summary {
        Summary { runs: self.runs, median: self.median, min: self.min, max: self.max }
    }

    fn identity(&self) -> Identity {
        (self.target.clone(), self.case.clone(), self.metric.clone(), self.params.clone())
    }
}

type Identity = (String, String, String, Params);

/// The measured rows of one benchmark run, without duplicates.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<FigureRow>", into = "Vec<FigureRow>")]
pub struct RowSet {
    rows: Vec<FigureRow>,
    identities: HashSet<Identity>,
}

/// The error if two rows of a set have the same target, case, metric and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateRow(String);

impl fmt::Display for DuplicateRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "two rows of this run have the same target, case, metric and parameters: {}", self.0)
    }
}

impl std::error::Error for DuplicateRow {}

impl RowSet {
    /// Adds a row. Returns an error if there already is a row with the same target, case, metric and parameters.
    pub fn push(&mut self, row: FigureRow) -> Result<(), DuplicateRow> {
        if !self.identities.insert(row.identity()) {
            let FigureRow { target, case, metric, params, .. } = row;
            return Err(DuplicateRow(format!("{case} {target} {metric} {params}")));
        }
        self.rows.push(row);
        Ok(())
    }

    /// Iterates over the rows in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, FigureRow> {
        self.rows.iter()
    }

    /// Calls `note` for each row. If `note` returns a note, stores the note in the row. Other fields of the rows do not
    /// change.
    pub fn annotate(&mut self, mut note: impl FnMut(&FigureRow) -> Option<RowNote>) {
        for row in &mut self.rows {
            if let Some(RowNote { text, unfair }) = note(row) {
                row.note = Some(text);
                row.unfair = unfair;
            }
        }
    }

    /// Calls `defaults` for each row, and adds those of the returned parameters that the row lacks.
    pub fn fill_params(&mut self, defaults: impl Fn(&FigureRow) -> &'static [(&'static str, u64)]) {
        for row in &mut self.rows {
            for (name, value) in defaults(row) {
                if row.params.get(name).is_none() {
                    row.params = row.params.clone().with(name, *value);
                }
            }
        }
        self.identities = self.rows.iter().map(FigureRow::identity).collect();
    }

    /// Removes all rows for which `should_remove` returns `true`.
    pub fn remove_if(&mut self, should_remove: impl Fn(&FigureRow) -> bool) {
        self.rows.retain(|row| !should_remove(row));
        self.identities = self.rows.iter().map(FigureRow::identity).collect();
    }

    /// Returns the first row that the pattern selects.
    pub fn find(&self, pattern: &RowPattern) -> Option<&FigureRow> {
        self.rows.iter().find(|row| pattern.matches(row))
    }
}

/// A note on a measured row. Tables show the note next to the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowNote {
    /// The text of the note.
    pub text: String,
    /// Whether tables must not show a ratio with the row, because such a ratio would be unfair.
    pub unfair: bool,
}

impl From<RowSet> for Vec<FigureRow> {
    fn from(set: RowSet) -> Self {
        set.rows
    }
}

impl TryFrom<Vec<FigureRow>> for RowSet {
    type Error = DuplicateRow;

    fn try_from(rows: Vec<FigureRow>) -> Result<Self, DuplicateRow> {
        let mut set = Self::default();
        for row in rows {
            set.push(row)?;
        }
        Ok(set)
    }
}

/// A pattern that selects measured rows by target, case, parameters and metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPattern {
    /// The name of the target.
    pub target: &'static str,
    /// The case.
    pub case: &'static str,
    /// The parameters that a row must have; the row may have more.
    pub params: &'static [(&'static str, &'static str)],
    /// The metric.
    pub metric: &'static str,
}

impl RowPattern {
    /// Whether the pattern selects a row.
    pub fn matches(&self, row: &FigureRow) -> bool {
        row.metric == self.metric && self.matches_point(&row.case, &row.target, &row.params)
    }

    /// Whether the pattern selects rows of the measurement with this case, target and parameters.
    pub fn matches_point(&self, case: &str, target: &str, params: &Params) -> bool {
        case == self.case && target == self.target && params.contains_all(self.params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: u64, metric: &str) -> FigureRow {
        let params = Params::new().with("bytes", bytes);
        let summary = Summary::of(&[1.0, 3.0, 2.0]).unwrap();
        FigureRow::new("spot", "throughput", "dunlin", &params, metric, summary, true)
    }

    #[test]
    fn row_set_refuses_a_second_row_with_the_same_key() {
        let mut set = RowSet::default();
        set.push(row(64, "msgs_per_s")).unwrap();
        set.push(row(64, "bytes_per_s")).unwrap();
        set.push(row(1024, "msgs_per_s")).unwrap();
        let refused = set.push(row(64, "msgs_per_s")).unwrap_err();
        assert!(refused.to_string().contains("throughput dunlin msgs_per_s bytes=64"));
        assert_eq!(set.iter().count(), 3);
    }

    #[test]
    fn file_with_two_rows_of_the_same_key_is_refused() {
        let rows = vec![row(64, "msgs_per_s"), row(64, "msgs_per_s")];
        let json = serde_json::to_string(&rows).unwrap();
        assert!(serde_json::from_str::<RowSet>(&json).is_err());
    }

    #[test]
    fn row_is_one_json_object_with_its_fields_in_order() {
        let json = serde_json::to_string(&row(64, "msgs_per_s")).unwrap();
        assert_eq!(
            json,
            r#"{"suite":"spot","case":"throughput","target":"dunlin","params":{"bytes":64},"metric":"msgs_per_s","unit":"1/s","runs":3,"median":2.0,"min":1.0,"max":3.0,"checked":true}"#
        );
    }

    #[test]
    fn row_pattern_matches_rows_with_additional_parameters() {
        let pattern = RowPattern {
            target: "dunlin",
            case: "throughput",
            params: &[("bytes", "64")],
            metric: "msgs_per_s",
        };
        assert!(pattern.matches(&row(64, "msgs_per_s")));
        assert!(!pattern.matches(&row(64, "bytes_per_s")));
        assert!(!pattern.matches(&row(65, "msgs_per_s")));
    }
}
