//! `otel`: lints the program with the feature `otel`, which exports traces to OpenTelemetry, and tests the export with
//! a collector.
//!
//! The command is not part of `cargo xtask test`: with the feature `otel`, common libraries get other features, and
//! have to be built a second time.

use anyhow::Result;

use crate::process::{self, cargo};

const FEATURE: [&str; 4] = ["-p", "dunlin-cli", "--features", "otel-test"];

pub fn run() -> Result<()> {
    process::run(cargo(&["clippy"]).args(FEATURE).args(["--all-targets", "--", "-D", "warnings"]))?;
    process::run(cargo(&["test"]).args(FEATURE).args(["--test", "it", "otel::"]))
}
