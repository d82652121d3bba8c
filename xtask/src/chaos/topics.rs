//! `chaos topics`: faults against topics of a cluster of real nodes (`tests/chaos/src/topics.rs`).
//!
//! Built as for development: assertions and overflow checks are on in what is tried. Nodes stand in network namespaces of
//! their own, which takes root and iproute2.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace;

/// The run of `cargo xtask test`: one that is short, and in which owners die under their publishers.
const SEED_IN_TEST: u64 = 1;
/// Steps of faults in it.
const STEPS_IN_TEST: u64 = 2;

/// The programs that a run needs.
pub struct Programs {
    /// What runs leave.
    dir: PathBuf,
    chaos: PathBuf,
    dunlin: PathBuf,
}

/// Runs these seeds; an error when one of them breaks something.
pub fn run(first: u64, seeds: u64) -> Result<()> {
    let programs = build()?;
    process::run(&mut programs.command(&programs.dunlin, first, seeds))
}

/// What `cargo xtask test` runs.
pub fn quick() -> Result<()> {
    let programs = build()?;
    process::text(Command::new(&programs.chaos).args(["topics", "probe"]))
        .context("network namespaces are needed: root, and iproute2")?;
    let mut command = programs.command(&programs.dunlin, SEED_IN_TEST, 1);
    process::run(command.arg(format!("steps={STEPS_IN_TEST}")))
}

/// Builds all of them.
pub fn build() -> Result<Programs> {
    workspace::build()?;
    let target = workspace::target_directory()?;
    let (dir, built) = (target.join("chaos").join("runs"), target.join("debug"));
    Ok(Programs { dir, chaos: built.join("chaos"), dunlin: built.join("dunlin") })
}

impl Programs {
    /// Runs of a node's program, which may be another than the tree's.
    pub fn command(&self, dunlin: &Path, first: u64, seeds: u64) -> Command {
        let mut command = Command::new(&self.chaos);
        command.args(["topics".to_owned(), format!("first={first}"), format!("seeds={seeds}")]);
        command.arg(format!("dunlin={}", dunlin.display())).arg(format!("dir={}", self.dir.display()));
        command
    }
}
