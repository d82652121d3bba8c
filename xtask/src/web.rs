//! `web`: tests the client for browsers (`web/client`) with a real node.
//!
//! The tools come from npm's registry, in the versions that the lock file states. Without npm or the registry, the
//! command fails.

use std::process::Command;

use anyhow::Result;

use crate::process;
use crate::workspace;

const CLIENT: &str = "web/client";

/// Builds the client and runs its tests.
pub fn run() -> Result<()> {
    install_packages()?;
    test_client()
}

fn npm(arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(workspace::root().join(CLIENT));
    command
}

fn install_packages() -> Result<()> {
    process::run(&mut npm(&["ci", "--no-audit", "--no-fund", "--silent"]))
}

fn test_client() -> Result<()> {
    let dunlin = workspace::build_dunlin()?;
    process::run(&mut npm(&["run", "build", "--silent"]))?;
    process::run(npm(&["test", "--silent"]).env("DUNLIN_BINARY", dunlin.get_program()))
}
