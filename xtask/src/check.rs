//! `check` only reads and says what is wrong; `fix` rewrites what a machine can put right.

use anyhow::Result;

use crate::process::{self, cargo};

/// Format, lints, tidiness.
pub fn run() -> Result<()> {
    format()?;
    lints()
}

/// The source is formatted.
pub fn format() -> Result<()> {
    process::run(&mut cargo(&["fmt", "--all", "--check"]))
}

/// No compiler or clippy warning anywhere, tests and examples included.
pub fn lints() -> Result<()> {
    process::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Lints first: what clippy rewrites may need formatting.
pub fn fix() -> Result<()> {
    process::run(&mut cargo(&[
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--workspace",
        "--all-targets",
    ]))?;
    process::run(&mut cargo(&["fmt", "--all"]))
}
