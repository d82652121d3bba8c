//! Runs the linearizability checker, a Go program in `tests/chaos/linear`.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::history::Operation;

/// Two numbers: the groups of keys that the linearizability checker examined, and those of them for which it found no
/// answer in time.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckCounts {
    /// The number of groups of keys that the checker examined.
    pub groups: u64,
    /// The number of groups for which the checker found no answer in time.
    pub undecided: u64,
}

/// Checks with the program `program` that a history is linearizable. Writes the history to `dir`. For each group of
/// keys that is not linearizable, also writes a page that shows the error.
pub fn check(program: &str, dir: &Path, operations: &[Operation]) -> Result<CheckCounts> {
    let path = dir.join("history.jsonl");
    let mut file = BufWriter::new(std::fs::File::create(&path)?);
    for operation in operations {
        writeln!(file, "{}", operation.to_json())?;
    }
    file.flush()?;
    let mut command = Command::new(program);
    let output = command
        .arg(&path)
        .arg(dir)
        .stdin(Stdio::null())
        .output()
        .context("cannot start the linearizability checker")?;
    let result: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("the checker's output is malformed: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    let illegal = result["illegal"].as_array().context("the checker's output has no array `illegal`")?;
    if !illegal.is_empty() {
        bail!("the history is not linearizable: {illegal:?}; drawing: {}", dir.display());
    }
    let number =
        |name: &str| result[name].as_u64().with_context(|| format!("the checker's output has no {name}"));
    Ok(CheckCounts { groups: number("groups")?, undecided: number("undecided")? })
}
