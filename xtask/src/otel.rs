//! `otel`: the program with the feature `otel`, linted, and its exporter tried against a collector that reads what it sends.
//!
//! No step of `test`: other features of the libraries that all else uses mean building these a second time.

use anyhow::Result;

use crate::process::{self, cargo};

const FEATURE: [&str; 4] = ["-p", "dunlin-cli", "--features", "otel-test"];

pub fn run() -> Result<()> {
    process::run(cargo(&["clippy"]).args(FEATURE).args(["--all-targets", "--", "-D", "warnings"]))?;
    process::run(cargo(&["test"]).args(FEATURE).args(["--test", "it", "otel::"]))
}
