//! `otel`: lints the program with the feature `otel`, which exports traces to OpenTelemetry, and tests the export with
//! a collector.
//!
//! The command does not belong to `cargo xtask test`, because the feature changes the features of common libraries,
//! which have to be built a second time.

use anyhow::Result;

use crate::process::{self, cargo};

const FEATURE: [&str; 4] = ["-p", "dunlin-cli", "--features", "otel-test"];

pub fn run() -> Result<()> {
    process::run(cargo(&["clippy"]).args(FEATURE).args(["--all-targets", "--", "-D", "warnings"]))?;
    process::run(cargo(&["test"]).args(FEATURE).args(["--test", "it", "otel::"]))
}
