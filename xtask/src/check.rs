//! `check` only reads and says what is wrong; `fix` rewrites what a machine can put right.

use anyhow::Result;

use crate::process::{self, cargo};
use crate::{python, tidy};

/// Tidiness, format, lints, dependencies.
pub fn run() -> Result<()> {
    tidy::run()?;
    format()?;
    lints()?;
    dependencies()
}

/// The source is formatted.
pub fn format() -> Result<()> {
    process::run(&mut cargo(&["fmt", "--all", "--check"]))?;
    python::format()
}

/// No compiler or clippy warning anywhere, tests and examples included.
pub fn lints() -> Result<()> {
    process::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Licences, sources and bans as deny.toml says, where cargo-deny is installed.
fn dependencies() -> Result<()> {
    let installed = process::output(&mut cargo(&["deny", "--version"]))?.status.success();
    if !installed {
        println!("dependencies: NOT checked: `cargo install cargo-deny --locked` first");
        return Ok(());
    }
    process::run(&mut cargo(&["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]))
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
    process::run(&mut cargo(&["fmt", "--all"]))?;
    process::run(&mut cargo(&["fmt", "--manifest-path", python::MANIFEST]))
}
