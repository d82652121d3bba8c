//! `chaos control`: tests the control state (keys, leases and locks) of a cluster of processes under faults, with the
//! program in `tests/chaos`.
//!
//! The programs are built with assertions and overflow checks. The proxy and the linearizability checker are Go
//! programs. Their versions are pinned in `tests/chaos/go.mod`, and they are built into `target/chaos`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace;

/// How many seeds `cargo xtask test` runs against the control state.
const SEEDS_IN_TEST: u64 = 3;
/// The first seed that `cargo xtask test` runs. With this choice, the last of the [`SEEDS_IN_TEST`] seeds changes a
/// clock.
const FIRST_IN_TEST: u64 = 3;
/// The file name of the library that changes the clock of a replica's process.
const CLOCK: &str = "clock.so";

/// The programs that a run needs, and their directory.
pub struct Programs {
    /// The directory for the Go programs, the clock library and the files of the runs.
    dir: PathBuf,
    chaos: PathBuf,
    replica: PathBuf,
}

/// Runs `seeds` consecutive seeds, beginning with `first`. Fails if a seed finds an error.
pub fn run(first: u64, seeds: u64) -> Result<()> {
    run_seeds(&build()?, first, seeds)
}

/// Runs the few seeds that belong to `cargo xtask test`.
pub fn quick() -> Result<()> {
    run_seeds(&build()?, FIRST_IN_TEST, SEEDS_IN_TEST)
}

fn run_seeds(programs: &Programs, first: u64, seeds: u64) -> Result<()> {
    process::run(&mut programs.command(&programs.replica, first, seeds))
}

pub fn build() -> Result<Programs> {
    let (target, dir) = (workspace::target_directory()?, build_go_programs()?);
    build_clock_library(&dir)?;
    workspace::build()?;
    Ok(Programs { dir, chaos: target.join("debug/chaos"), replica: target.join("debug/replica") })
}

/// Builds the Go programs, and returns the directory that contains them.
fn build_go_programs() -> Result<PathBuf> {
    let dir = workspace::target_directory()?.join("chaos");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    build_go_program(&dir, "toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server")?;
    build_go_program(&dir, "linear", "./linear")?;
    Ok(dir)
}

/// Builds the library that changes the clocks of replicas. This build needs a C compiler, which the build of the crate
/// `ring` needs too.
fn build_clock_library(dir: &Path) -> Result<()> {
    let mut build = Command::new("cc");
    build.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(dir.join(CLOCK));
    process::run(build.arg("tests/chaos/clock.c").current_dir(workspace::root()))
        .context("chaos needs a C compiler (cc)")
}

fn build_go_program(dir: &Path, name: &str, package: &str) -> Result<()> {
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(dir.join(name)).arg(package);
    process::run(build.current_dir(workspace::root().join("tests/chaos")))
        .context("chaos needs Go (https://go.dev/dl) and, at the first run, access to the Go module proxy")
}

impl Programs {
    /// Returns the command that runs `seeds` seeds, beginning with `first`. `replica` is the path of the replica
    /// program, which may belong to a mutant.
    pub fn command(&self, replica: &Path, first: u64, seeds: u64) -> Command {
        let mut command = Command::new(&self.chaos);
        let path = |key: &str, path: &Path| format!("{key}={}", path.display());
        command.arg(path("replica", replica)).arg(path("dir", &self.dir.join("runs")));
        command.arg(path("toxiproxy", &self.dir.join("toxiproxy")));
        command.arg(path("linear", &self.dir.join("linear"))).arg(path("clock", &self.dir.join(CLOCK)));
        command.args([format!("first={first}"), format!("seeds={seeds}")]);
        command
    }
}
