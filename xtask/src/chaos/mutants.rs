//! `chaos mutants`: does the net catch fish? Each patch of `tests/chaos/mutants` puts one bug back into a copy of the tree
//! under `target/chaos/mutants`, and the same runs have to find it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::control::{self, Programs};
use crate::process;
use crate::workspace;

/// From the repository's root.
const PATCHES: &str = "tests/chaos/mutants";
/// As many as the issue asks for, and one of clocks.
const COUNT: usize = 6;

/// Every patch applies to the tree as it is.
pub fn check() -> Result<()> {
    for patch in patches()? {
        let mut apply = Command::new("git");
        apply.args(["apply", "--check"]).arg(&patch).current_dir(workspace::root());
        process::text(&mut apply).with_context(|| format!("{} is to be made anew", patch.display()))?;
    }
    Ok(())
}

/// Tries each against these many seeds, or those whose names contain `only`.
pub fn run(seeds: u64, count: bool, only: Option<&str>) -> Result<()> {
    check()?;
    let programs = control::build(&[])?;
    let (tree, mut missed) = (programs.mutants().join("tree"), Vec::new());
    for patch in patches()? {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if only.is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let replica = build(&programs, &tree, &patch)?;
        let (broken, tried) = control::broken(&programs, &replica, seeds, count)?;
        println!("{name}: found by {broken} of {tried} seeds");
        if broken == 0 {
            missed.push(name);
        }
    }
    ensure!(missed.is_empty(), "not found by {seeds} seeds: {}", missed.join(", "));
    Ok(())
}

fn patches() -> Result<Vec<PathBuf>> {
    let dir = workspace::root().join(PATCHES);
    let entries = std::fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut patches: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    patches.sort();
    if patches.len() != COUNT {
        bail!("{PATCHES} has {} patches, not {COUNT}", patches.len());
    }
    Ok(patches)
}

fn build(programs: &Programs, tree: &Path, patch: &Path) -> Result<PathBuf> {
    copy_tree(tree)?;
    let mut apply = Command::new("git");
    apply.arg("apply").arg(patch).current_dir(tree);
    // The copy lies in the repository and is none.
    apply.env("GIT_CEILING_DIRECTORIES", tree.parent().context("it lies somewhere")?);
    process::run(&mut apply)?;
    let target = programs.mutants().join("target");
    let mut build = process::cargo(&["build", "--workspace", "--bin", "replica", "--target-dir"]);
    process::run(build.arg(&target).current_dir(tree))?;
    let (built, kept) = (target.join("debug/replica"), programs.mutants().join("replica"));
    std::fs::copy(&built, &kept).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(kept)
}

/// Files that are as they were are left alone, so that cargo builds only what a patch changes.
fn copy_tree(tree: &Path) -> Result<()> {
    let root = workspace::root();
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(&root);
    for path in process::text(&mut list)?.split_terminator('\0') {
        let (from, to) = (root.join(path), tree.join(path));
        let Ok(bytes) = std::fs::read(&from) else { continue };
        if std::fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("a file lies somewhere")?)?;
        std::fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}
