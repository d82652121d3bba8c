//! `chaos topics`: tests the topics of a cluster of real nodes under faults (`tests/chaos/src/topics.rs`).
//!
//! The programs are built with assertions and overflow checks. Each node runs in its own network namespace, which needs
//! root and iproute2.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace;

/// The seed that `cargo xtask test` runs. With this seed, the killed nodes own topics to which publishers are
/// publishing at the time of the kill.
const SEED_IN_TEST: u64 = 1;
/// How many faults the run of [`SEED_IN_TEST`] injects.
const STEPS_IN_TEST: u64 = 2;

/// The programs that a run needs, and their directory.
pub struct Programs {
    /// The directory for the files that the runs write.
    dir: PathBuf,
    chaos: PathBuf,
    dunlin: PathBuf,
}

/// Runs `seeds` consecutive seeds, beginning with `first`. Fails if a seed finds an error.
pub fn run(first: u64, seeds: u64) -> Result<()> {
    let programs = build()?;
    process::run(&mut programs.command(&programs.dunlin, first, seeds))
}

/// Makes the short run that belongs to `cargo xtask test`.
pub fn quick() -> Result<()> {
    let programs = build()?;
    process::text(Command::new(&programs.chaos).args(["topics", "probe"]))
        .context("cannot create network namespaces: run as root, with iproute2 installed")?;
    let mut command = programs.command(&programs.dunlin, SEED_IN_TEST, 1);
    process::run(command.arg(format!("steps={STEPS_IN_TEST}")))
}

pub fn build() -> Result<Programs> {
    workspace::build()?;
    let target = workspace::target_directory()?;
    let (dir, built) = (target.join("chaos").join("runs"), target.join("debug"));
    Ok(Programs { dir, chaos: built.join("chaos"), dunlin: built.join("dunlin") })
}

impl Programs {
    /// Returns the command that runs `seeds` seeds, beginning with `first`. `dunlin` is the path of the node's program,
    /// which may belong to a mutant.
    pub fn command(&self, dunlin: &Path, first: u64, seeds: u64) -> Command {
        let mut command = Command::new(&self.chaos);
        command.args(["topics".to_owned(), format!("first={first}"), format!("seeds={seeds}")]);
        command.arg(format!("dunlin={}", dunlin.display())).arg(format!("dir={}", self.dir.display()));
        command
    }
}
