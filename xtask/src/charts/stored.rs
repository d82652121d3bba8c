//! Reads the results of benchmark runs that `dunlin bench` has stored.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace;

/// A stored run of `dunlin bench`.
pub struct BenchRun {
    pub date: String,
    pub commit: String,
    pub machine: String,
    rows: Vec<Value>,
}

/// The result of several measurements: their median, minimum and maximum.
#[derive(Clone, Copy)]
pub struct MeasuredValue {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// Returns all stored runs except quick runs and runs of debug builds, the newest first.
pub fn newest_first() -> Result<Vec<BenchRun>> {
    let folder = workspace::root().join("bench-runs");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort_unstable();
    let mut runs = Vec::new();
    for path in paths.iter().rev() {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let run: Value =
            serde_json::from_str(&text).with_context(|| format!("{} is not valid JSON", path.display()))?;
        if run["quick"] == false && run["debug_build"] == false {
            runs.push(BenchRun::from_json(&run));
        }
    }
    Ok(runs)
}

impl BenchRun {
    fn from_json(run: &Value) -> BenchRun {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let machine = &run["machine"];
        let cores = machine["cores"].as_u64().unwrap_or_default();
        BenchRun {
            date: text(&run["date"]).chars().take(10).collect(),
            commit: text(&run["commit"]).chars().take(12).collect(),
            machine: format!("{}, {cores} cores", text(&machine["processor"])),
            rows: run["rows"].as_array().cloned().unwrap_or_default(),
        }
    }

    /// Returns the value of `metric` in the first matching row. A row matches if its deliveries were checked, if it has
    /// the given case and target, and if its parameters include `params`.
    pub fn figure(
        &self,
        case: &str,
        target: &str,
        params: &[(&str, Value)],
        metric: &str,
    ) -> Option<MeasuredValue> {
        let row = self.rows.iter().find(|row| {
            row["case"] == case
                && row["target"] == target
                && row["metric"] == metric
                && row["checked"] == true
                && params.iter().all(|(name, value)| row["params"][*name] == *value)
        })?;
        let number = |name| row[name].as_f64();
        Some(MeasuredValue { median: number("median")?, min: number("min")?, max: number("max")? })
    }
}
