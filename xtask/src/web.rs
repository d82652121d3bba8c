//! `web`: the client for browsers, tried against the real binary.
//!
//! Its tools come from npm's registry, at the versions of the lock file. Where there is no npm, or it cannot be reached, the command
//! fails; as a step of `cargo xtask test` it passes over what it could not have, and says so.

use std::process::Command;

use anyhow::Result;

use crate::process;
use crate::workspace;

const CLIENT: &str = "web/client";

/// Builds it and runs its tests.
pub fn run() -> Result<()> {
    fetch()?;
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
    let dunlin = workspace::dunlin()?;
    process::run(&mut npm(&["run", "build", "--silent"]))?;
    process::run(npm(&["test", "--silent"]).env("DUNLIN_BINARY", dunlin.get_program()))
}
