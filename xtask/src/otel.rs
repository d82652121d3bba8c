//! `otel`: lints the program with the feature `otel`, and tests its exporter with a collector.
//!
//! `cargo xtask test` does not run the command, because another set of features needs a second build of common
//! libraries.

use anyhow::Result;

use crate::process::{self, cargo};

const FEATURE: [&str; 4] = ["-p", "dunlin-cli", "--features", "otel-test"];

pub fn run() -> Result<()> {
    process::run(cargo(&["clippy"]).args(FEATURE).args(["--all-targets", "--", "-D", "warnings"]))?;
    process::run(cargo(&["test"]).args(FEATURE).args(["--test", "it", "otel::"]))
}
