//! `web`: the client for browsers, tried against the real binary.
//!
//! Its tools come from npm's registry, at the versions of the lock file. Where there is no npm, or it cannot be reached, the command
//! fails; as a step of `cargo xtask test` it passes over what it could not have, and says so.

use std::process::Command;

use anyhow::Result;

use crate::process::{self, cargo};
use crate::workspace;

const CLIENT: &str = "web/client";

/// Builds it and runs its tests.
pub fn run() -> Result<()> {
    fetch()?;
    try_client()
}

/// What `cargo xtask test` runs.
pub fn all_there_is() -> Result<()> {
    if let Err(error) = fetch() {
        eprintln!("{CLIENT} is passed over, it needs node, npm and its registry: {error:#}");
        return Ok(());
    }
    try_client()
}

fn npm(arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(workspace::root().join(CLIENT));
    command
}

fn fetch() -> Result<()> {
    process::run(&mut npm(&["ci", "--no-audit", "--no-fund", "--silent"]))
}

fn try_client() -> Result<()> {
    process::run(&mut cargo(&["build", "-p", "dunlin-cli"]))?;
    process::run(&mut npm(&["run", "build", "--silent"]))?;
    let mut tests = npm(&["test", "--silent"]);
    process::run(tests.env("DUNLIN_BINARY", workspace::target_directory()?.join("debug/dunlin")))
}
