//! `chaos mutants`: checks that the chaos tests find known bugs. Each patch in `tests/chaos/mutants` contains one bug.
//! The command applies the patch to a copy of the source tree in `target/chaos/mutants`, and runs chaos tests there.
//! Runs of `chaos topics` must find the bugs in the subdirectory `topics`; runs of `chaos control` must find all other
//! bugs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{control, topics};
use crate::process;
use crate::workspace;

/// A set of patches. Each patch adds a bug to the same program.
struct MutantSet {
    /// The directory of the patches, relative to the repository's root.
    patches: &'static str,
    /// The expected number of patches, so that a missing patch is noticed.
    count: usize,
    /// The name of the program to which the patches add bugs.
    program: &'static str,
}

/// The patches that add bugs to the control state.
const CONTROL: MutantSet = MutantSet { patches: "tests/chaos/mutants", count: 6, program: "replica" };
/// The patches that add bugs to topics.
const TOPICS: MutantSet = MutantSet { patches: "tests/chaos/mutants/topics", count: 2, program: "dunlin" };

/// Tests each patch with `seeds` seeds. `only` selects the patches whose names contain this text. With `count`, runs
/// all seeds; otherwise, stops at the first seed that finds the bug.
pub fn run(seeds: u64, count: bool, only: Option<&str>) -> Result<()> {
    let mut missed = Vec::new();
    let (control_patches, topics_patches) = (CONTROL.select(only)?, TOPICS.select(only)?);
    if !control_patches.is_empty() {
        let programs = control::build()?;
        missed.extend(
            CONTROL.run_mutants(&control_patches, count, |replica| programs.command(replica, 1, seeds))?,
        );
    }
    if !topics_patches.is_empty() {
        let programs = topics::build()?;
        missed
            .extend(TOPICS.run_mutants(&topics_patches, count, |dunlin| programs.command(dunlin, 1, seeds))?);
    }
    ensure!(missed.is_empty(), "these mutants survived {seeds} seeds: {}", missed.join(", "));
    Ok(())
}

impl MutantSet {
    fn patches(&self) -> Result<Vec<PathBuf>> {
        let dir = workspace::root().join(self.patches);
        let entries = std::fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
        let mut patches: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        patches.retain(|path| path.extension().is_some_and(|ending| ending == "patch"));
        patches.sort();
        if patches.len() != self.count {
            bail!("{} has {} patches, expected {}", self.patches, patches.len(), self.count);
        }
        Ok(patches)
    }

    fn select(&self, only: Option<&str>) -> Result<Vec<PathBuf>> {
        let mut patches = self.patches()?;
        patches.retain(|patch| only.is_none_or(|only| mutant_name(patch).contains(only)));
        Ok(patches)
    }

    /// Tests each of these patches with the seeds. Returns the names of those patches whose bugs no seed found.
    fn run_mutants(
        &self,
        patches: &[PathBuf],
        count: bool,
        command: impl Fn(&Path) -> Command,
    ) -> Result<Vec<String>> {
        let mut missed = Vec::new();
        for patch in patches {
            let (name, program) = (mutant_name(patch), self.build(patch)?);
            let (broken, tried) = count_failures(command(&program), count)?;
            println!("{name}: found by {broken} of {tried} seeds");
            if broken == 0 {
                missed.push(name);
            }
        }
        Ok(missed)
    }

    fn build(&self, patch: &Path) -> Result<PathBuf> {
        let dir = workspace::target_directory()?.join("chaos").join("mutants");
        let tree = dir.join("tree");
        copy_tree(&tree)?;
        let mut apply = Command::new("git");
        apply.arg("apply").arg(patch).current_dir(&tree);
        // The copy is in a directory inside the repository that git does not track. Without this variable, git would
        // apply the patch to the repository's own files.
        apply.env("GIT_CEILING_DIRECTORIES", &dir);
        process::run(&mut apply)?;
        let target = dir.join("target");
        let mut build = process::cargo(&["build", "--workspace", "--bin", self.program, "--target-dir"]);
        process::run(build.arg(&target).current_dir(&tree))?;
        let (built, program) = (target.join("debug").join(self.program), dir.join(self.program));
        std::fs::copy(&built, &program).with_context(|| format!("cannot copy {}", built.display()))?;
        Ok(program)
    }
}

fn mutant_name(patch: &Path) -> String {
    patch.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Runs `command`, which tries seeds. Returns two numbers: the seeds that found an error, and the seeds that were
/// tried. If `count` is set, the command tries all seeds; otherwise, it stops at the first error.
fn count_failures(mut command: Command, count: bool) -> Result<(u64, u64)> {
    if count {
        command.arg("count");
    }
    let output = process::output(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let tried = text.lines().filter(|line| line.starts_with("seed ")).count() as u64;
    let broken: Vec<&str> = text.lines().filter(|line| line.contains("BROKEN")).collect();
    for line in &broken {
        let line: String = line.chars().take(300).collect();
        println!("  {line}");
    }
    if tried == 0 {
        bail!("no mutant ran: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok((broken.len() as u64, tried))
}

/// Copies the repository's files to `tree`. Does not write a file whose copy is already equal, so that cargo rebuilds
/// only the code that a patch changes.
fn copy_tree(tree: &Path) -> Result<()> {
    let root = workspace::root();
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(&root);
    for path in process::text(&mut list)?.split_terminator('\0') {
        let (from, to) = (root.join(path), tree.join(path));
        let Ok(bytes) = std::fs::read(&from) else { continue };
        if std::fs::read(&to).is_ok_and(|existing| existing == bytes) {
            continue;
        }
        std::fs::create_dir_all(
            to.parent().with_context(|| format!("{} has no parent folder", to.display()))?,
        )?;
        std::fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}
