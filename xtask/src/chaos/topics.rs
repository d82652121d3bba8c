//! `chaos topics`: faults against topics of a cluster of real nodes (`tests/chaos/src/topics.rs`).
//!
//! Built as for development: assertions and overflow checks are on in what is tried. Nodes stand in network namespaces of
//! their own, which takes root and iproute2.

use std::process::Command;

use anyhow::Result;

use crate::process::{self, cargo};
use crate::workspace;

/// Runs these seeds; an error when one of them breaks something.
pub fn run(first: u64, seeds: u64) -> Result<()> {
    process::run(&mut cargo(&["build", "--workspace", "--bin", "chaos", "--bin", "dunlin"]))?;
    let target = workspace::target_directory()?;
    let dir = target.join("chaos").join("runs");
    let mut command = Command::new(target.join("debug/chaos"));
    command.args(["topics".to_owned(), format!("first={first}"), format!("seeds={seeds}")]);
    command.arg(format!("dunlin={}", target.join("debug/dunlin").display()));
    command.arg(format!("dir={}", dir.display()));
    process::run(&mut command)
}
