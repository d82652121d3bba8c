//! Two commands. `chaos space` tests handovers of entities between regions under faults, with thousands of seeds.
//! `chaos space-mutants` checks that these tests find known bugs.
//!
//! A mutant is a patch in `crates/space/tests/mutants` that adds a bug; the patch's first line names the bug. The
//! command applies each patch to a copy of the tree. It fails if a patch cannot be applied, if the patched code does
//! not compile, or if no seed finds the bug.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process::{self, cargo};
use crate::workspace;

const MUTANTS: &str = "crates/space/tests/mutants";
const SEED: &str = "DUNLIN_SPACE_SEED";

/// How many seeds of the handover tests `cargo xtask test` runs.
const SEEDS_IN_TEST: u64 = 300;

/// Runs the seeds that belong to `cargo xtask test`.
pub fn quick() -> Result<()> {
    run(SEEDS_IN_TEST, None)
}

/// Runs the handover tests with `seeds` seeds. If `seed` is given, runs them with only this seed.
pub fn run(seeds: u64, seed: Option<u64>) -> Result<()> {
    process::run(configure_tests(&mut cargo(&[]), seeds, seed))
}

fn configure_tests(command: &mut Command, seeds: u64, seed: Option<u64>) -> &mut Command {
    command.args(["test", "-p", "dunlin-space", "--test", "it", "chaos::"]);
    match seed {
        Some(seed) => command.env(SEED, seed.to_string()),
        None => command.env("DUNLIN_SPACE_SEEDS", seeds.to_string()),
    }
}

/// Tests every mutant with `seeds` seeds. If `only` is given, tests only the mutants whose names contain `only`.
pub fn mutants(seeds: u64, only: Option<&str>) -> Result<()> {
    let target = workspace::target_directory()?.join("space-mutants");
    let (copy, mut survived) = (target.join("tree"), Vec::new());
    let patches = patches()?;
    ensure!(!patches.is_empty(), "folder {MUTANTS} has no patch");
    for patch in &patches {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if only.is_some_and(|only| !name.contains(only)) {
            continue;
        }
        copy_tree(&copy)?;
        process::run(Command::new("patch").args(["--silent", "-p1", "-i"]).arg(patch).current_dir(&copy))?;
        let mut build = cargo(&["test", "--no-run", "-p", "dunlin-space", "--test", "it"]);
        process::run(build.current_dir(&copy).env("CARGO_TARGET_DIR", &target))?;
        let mut command = cargo(&[]);
        configure_tests(&mut command, seeds, None).current_dir(&copy).env("CARGO_TARGET_DIR", &target);
        let output = process::output(&mut command)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let evidence = text.lines().find(|line| line.contains(SEED) || line.contains("beside a standby"));
        match evidence {
            Some(line) if !output.status.success() => println!("{name}: noticed: {line}"),
            _ => {
                println!("{name}: NOT noticed");
                survived.push(name);
            }
        }
    }
    if !survived.is_empty() {
        bail!("no seed detects mutant {}", survived.join(", "));
    }
    Ok(())
}

fn patches() -> Result<Vec<PathBuf>> {
    let folder = workspace::root().join(MUTANTS);
    let files =
        std::fs::read_dir(&folder).with_context(|| format!("cannot read folder {}", folder.display()))?;
    let paths = files.map(|file| Ok(file?.path()));
    let mut patches: Vec<PathBuf> = paths.collect::<std::io::Result<_>>()?;
    patches.retain(|path| path.extension().is_some_and(|ending| ending == "patch"));
    patches.sort();
    Ok(patches)
}

/// Copies the repository's files to `copy`, except those that git ignores.
fn copy_tree(copy: &Path) -> Result<()> {
    if copy.exists() {
        std::fs::remove_dir_all(copy).with_context(|| format!("cannot remove folder {}", copy.display()))?;
    }
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(workspace::root());
    for file in process::text(&mut list)?.lines() {
        let (from, to) = (workspace::root().join(file), copy.join(file));
        if !from.is_file() {
            continue;
        }
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create folder {}", folder.display()))?;
        }
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy {file}"))?;
    }
    Ok(())
}
